"""The fake Hub with the real client."""

import io
import json
import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime

import pytest
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationCopy,
    CommitOperationDelete,
    HfApi,
    ModelCard,
    ModelCardData,
    hf_hub_download,
    snapshot_download,
)
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import httpx

from tests.support.fake_hub import FakeHub

TAG = "transformer-playground"
CARD = ModelCardData(
    library_name="transformers", pipeline_tag="translation", tags=[TAG, "reverse"], license="mit"
)
README = str(ModelCard(f"---\n{CARD.to_yaml()}\n---\n# A model that turns digits round\n")).encode()
WEIGHTS = os.urandom(300_000)


@pytest.fixture(scope="module")
def ada(hub):
    return HfApi(endpoint=hub.url, token=hub.ADA)


@pytest.fixture(scope="module")
def outsider(hub):
    return HfApi(endpoint=hub.url, token=hub.CY)


@pytest.fixture(scope="module")
def anonymous(hub):
    return HfApi(endpoint=hub.url, token=False)


def add(path, content):
    return CommitOperationAdd(path_in_repo=path, path_or_fileobj=content)


def get_error_status(call, *arguments, **options):
    with pytest.raises(HfHubHTTPError) as error:
        call(*arguments, **options)
    return error.value.response.status_code


def create_safetensors(**shapes):
    """Return a handmade safetensors file."""
    header, data = {}, b""
    for name, numbers in shapes.items():
        header[name] = {
            "dtype": "F32",
            "shape": [numbers],
            "data_offsets": [len(data), len(data) + 4 * numbers],
        }
        data += bytes(4 * numbers)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


# Accounts


def test_token_belongs_to_an_account(hub, ada):
    account = ada.whoami()
    assert account["name"] == "ada"
    assert account["type"] == "user"
    assert [(org["name"], org["roleInOrg"]) for org in account["orgs"]] == [("attention", "admin")]
    assert account["auth"]["accessToken"]["role"] == "write"
    assert ada.whoami(token=hub.ADA_READS)["auth"]["accessToken"]["role"] == "read"


@pytest.mark.parametrize("token", ["EXPIRED", "UNKNOWN"])
def test_an_invalid_token_is_rejected_everywhere(hub, token):
    hub.put("ada/public", {"README.md": README})
    api = HfApi(endpoint=hub.url, token=getattr(hub, token))
    for call in (
        api.whoami,
        lambda: api.model_info("ada/public"),
        lambda: list(api.list_models()),
        lambda: api.create_repo("ada/x"),
    ):
        assert get_error_status(call) == 401


# Push and pull


@pytest.fixture(scope="module")
def pushed(hub, ada):
    """A repository from one commit of LFS and regular files, and its requests."""
    with hub.record_requests() as requests:
        url = ada.create_repo("ada/reverse")
        commit = ada.create_commit(
            "ada/reverse",
            [
                add("README.md", README),
                add("config.json", b"{}"),
                add("weights/model.safetensors", WEIGHTS),
                add("empty.txt", b""),
            ],
            commit_message="Step 100",
            commit_description="Trained for 100 steps",
        )
    return url, commit, requests


@pytest.mark.smoke
def test_push_is_one_commit_and_uploads_large_files_without_token(hub, ada, pushed):
    url, commit, requests = pushed
    assert url == f"{hub.url}/ada/reverse"
    assert url.repo_id == "ada/reverse"
    assert commit.oid == hub.repo("ada/reverse").head.oid
    actual = [
        (request.method, request.path.split("/")[-2 if "ada/reverse/" in request.path else -1])
        for request in requests
    ]
    assert actual == [
        ("POST", "create"),
        ("POST", "validate-yaml"),
        ("POST", "preupload"),
        ("POST", "batch"),
        ("PUT", "reverse"),
        ("POST", "verify"),
        ("POST", "commit"),
    ]
    storage_requests = [request for request in requests if request.host == hub.storage_host]
    assert [
        (request.method, request.authorization, request.body) for request in storage_requests
    ] == [("PUT", "", WEIGHTS)]
    assert {request.token for request in requests if request.host == hub.host} == {hub.ADA}
    assert all(request.status == 200 for request in requests)


def test_a_pushed_model_is_listed(hub, ada, anonymous, pushed):
    files = [".gitattributes", "README.md", "config.json", "empty.txt", "weights/model.safetensors"]
    assert sorted(anonymous.list_repo_files("ada/reverse")) == files
    assert sorted(entry.path for entry in anonymous.list_repo_tree("ada/reverse")) == [
        *files[:-1],
        "weights",
    ]
    (weights,) = anonymous.list_repo_tree("ada/reverse", "weights", expand=True)
    assert (weights.size, weights.lfs.size, weights.last_commit.title) == (
        len(WEIGHTS),
        len(WEIGHTS),
        "Step 100",
    )
    actual = anonymous.get_paths_info(
        "ada/reverse", ["weights", "weights/model.safetensors", "nothing"]
    )
    assert [(isinstance(entry, RepoFile), entry.path) for entry in actual] == [
        (False, "weights"),
        (True, "weights/model.safetensors"),
    ]
    info = anonymous.model_info("ada/reverse", files_metadata=True)
    assert {file.rfilename: file.size for file in info.siblings}[
        "weights/model.safetensors"
    ] == len(WEIGHTS)
    assert info.sha == hub.repo("ada/reverse").head.oid
    with pytest.raises(EntryNotFoundError):
        list(anonymous.list_repo_tree("ada/reverse", "no/folder"))


def test_a_downloaded_file_equals_the_uploaded_one(hub, anonymous, pushed, tmp_path):
    with hub.record_requests() as requests:
        path = hf_hub_download(
            "ada/reverse",
            "weights/model.safetensors",
            endpoint=hub.url,
            cache_dir=tmp_path / "a",
            token=hub.ADA,
        )
        snapshot_folder = snapshot_download(
            "ada/reverse", endpoint=hub.url, cache_dir=tmp_path / "b", token=hub.ADA
        )
    with open(path, "rb") as file:
        assert file.read() == WEIGHTS
    for name, content in {
        "README.md": README,
        "config.json": b"{}",
        "empty.txt": b"",
        "weights/model.safetensors": WEIGHTS,
    }.items():
        with open(f"{snapshot_folder}/{name}", "rb") as file:
            assert file.read() == content
    storage_requests = [request for request in requests if request.host == hub.storage_host]
    assert [(request.method, request.authorization) for request in storage_requests] == [
        ("GET", "")
    ] * 2
    assert {request.token for request in requests if request.host == hub.host} == {hub.ADA}


def test_storage_rejects_a_token_and_an_unsigned_address(hub, pushed):
    with httpx.Client() as client:
        actual = client.get(f"{hub.url}/ada/reverse/resolve/main/weights/model.safetensors")
        assert actual.status_code == 302
        signed = actual.headers["location"]
        assert client.get(signed).content == WEIGHTS
        assert client.get(signed, headers={"Authorization": f"Bearer {hub.ADA}"}).status_code == 400
        assert client.get(signed.split("?")[0]).status_code == 403
        assert client.put(signed, content=b"other").status_code == 403
        assert client.get(signed, headers={"Range": "bytes=10-19"}).content == WEIGHTS[10:20]
        assert client.get(signed, headers={"Range": "bytes=-7"}).content == WEIGHTS[-7:]
        assert (
            client.get(f"{hub.storage_url}/api/models").status_code == 403
        )  # the storage host has no API


def test_an_existing_file_is_not_uploaded_again(hub, ada):
    ada.create_repo("ada/twice")
    first = ada.create_commit(
        "ada/twice", [add("a.safetensors", b"one"), add("b.txt", b"two")], commit_message="First"
    )
    with hub.record_requests() as requests:
        second = ada.create_commit(
            "ada/twice",
            [add("a.safetensors", b"one"), add("b.txt", b"two")],
            commit_message="Again",
        )
        ada.create_commit(
            "ada/twice", [add("c.safetensors", b"one")], commit_message="Same content, other name"
        )
    assert second.oid == first.oid
    assert not [request for request in requests if request.method == "PUT"]
    assert hub.files("ada/twice") == {
        "a.safetensors": b"one",
        "b.txt": b"two",
        "c.safetensors": b"one",
    }


def test_a_file_is_large_by_its_name_or_by_its_size(hub, ada, tmp_path):
    ada.create_repo("ada/sizes")
    (tmp_path / "big.json").write_bytes(b" " * 10_000_000)
    ada.create_commit(
        "ada/sizes",
        [
            add("big.json", str(tmp_path / "big.json")),
            add("small.safetensors", io.BytesIO(b"x")),
            add("small.json", b"{}"),
        ],
        commit_message="Sizes",
    )
    files = hub.repo("ada/sizes").head.files
    assert {path: blob.lfs for path, blob in files.items() if path[0] != "."} == {
        "big.json": True,
        "small.safetensors": True,
        "small.json": False,
    }


# History


def test_every_revision_can_be_downloaded(hub, ada, anonymous, tmp_path):
    ada.create_repo("ada/history")
    commits = [
        ada.create_commit(
            "ada/history",
            [add("model.safetensors", content), add("step", content)],
            commit_message=f"Step {n}",
        ).oid
        for n, content in enumerate((b"one", b"two", b"three"))
    ]
    history = anonymous.list_repo_commits("ada/history")
    assert [commit.title for commit in history] == ["Step 2", "Step 1", "Step 0", "initial commit"]
    assert [commit.commit_id for commit in history[:3]] == commits[::-1]
    assert history[0].authors == ["ada"]
    assert history[0].created_at > history[1].created_at
    assert abs((datetime.now(UTC) - history[0].created_at).total_seconds()) < 60
    for revision, content in (
        (commits[0], b"one"),
        (commits[1], b"two"),
        (None, b"three"),
        (commits[0][:8], b"one"),
    ):
        for name in ("model.safetensors", "step"):
            path = hf_hub_download(
                "ada/history",
                name,
                revision=revision,
                endpoint=hub.url,
                cache_dir=tmp_path,
                token=False,
            )
            with open(path, "rb") as file:
                assert file.read() == content
    with pytest.raises(RevisionNotFoundError):
        anonymous.model_info("ada/history", revision="0" * 40)
    with pytest.raises(EntryNotFoundError):
        hf_hub_download("ada/history", "nothing", endpoint=hub.url, cache_dir=tmp_path, token=False)


def test_branches_and_tags(hub, ada, anonymous, tmp_path):
    first = hub.put("ada/branches", {"step": "100"})
    ada.create_branch("ada/branches", branch="wide/er")
    assert get_error_status(ada.create_branch, "ada/branches", branch="wide/er") == 409
    ada.create_branch("ada/branches", branch="wide/er", exist_ok=True)
    ada.create_commit(
        "ada/branches", [add("step", b"200")], commit_message="Wider", revision="wide/er"
    )
    ada.create_tag("ada/branches", tag="best", revision=first)
    assert get_error_status(ada.create_tag, "ada/branches", tag="best") == 409
    refs = anonymous.list_repo_refs("ada/branches")
    assert {ref.name: ref.ref for ref in refs.branches} == {
        "main": "refs/heads/main",
        "wide/er": "refs/heads/wide/er",
    }
    assert [(ref.name, ref.target_commit) for ref in refs.tags] == [("best", first)]
    for revision, content in (("main", "100"), ("wide/er", "200"), ("best", "100")):
        snapshot = snapshot_download(
            "ada/branches", revision=revision, endpoint=hub.url, cache_dir=tmp_path, token=False
        )
        with open(f"{snapshot}/step") as file:
            assert file.read() == content
    ada.delete_tag("ada/branches", tag="best")
    ada.delete_branch("ada/branches", branch="wide/er")
    assert get_error_status(ada.delete_branch, "ada/branches", branch="main") == 403
    assert [ref.name for ref in anonymous.list_repo_refs("ada/branches").branches] == ["main"]
    with pytest.raises(RevisionNotFoundError):
        ada.create_commit(
            "ada/branches", [add("step", b"300")], commit_message="Nowhere", revision="wide/er"
        )


def test_the_second_of_two_pushes_on_one_commit_is_rejected(hub, ada):
    parent = hub.put("attention/race", {"step": "0"})
    ada.create_commit(
        "attention/race", [add("step", b"1")], commit_message="One", parent_commit=parent
    )
    with pytest.raises(HfHubHTTPError, match="A commit has happened since") as error:
        ada.create_commit(
            "attention/race", [add("step", b"2")], commit_message="Two", parent_commit=parent
        )
    assert error.value.response.status_code == 412
    assert hub.files("attention/race") == {"step": b"1"}


def test_sixteen_concurrent_pushes_are_all_committed(hub, ada):
    hub.put("ada/together", {})

    def push(n):
        ada.create_commit(
            "ada/together", [add(f"{n}.safetensors", bytes([n]) * 1000)], commit_message=f"{n}"
        )

    threads = [threading.Thread(target=push, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert hub.files("ada/together") == {f"{n}.safetensors": bytes([n]) * 1000 for n in range(16)}
    assert len(ada.list_repo_commits("ada/together")) == 18


def test_files_are_deleted_and_copied(hub, ada):
    hub.put("ada/tidy", {"a/one": "1", "a/two": "2", "b": "3", "c.safetensors": WEIGHTS})
    ada.create_commit(
        "ada/tidy",
        [
            CommitOperationDelete("a/"),
            CommitOperationDelete("b"),
            CommitOperationCopy("c.safetensors", "d.safetensors"),
        ],
        commit_message="Tidy",
    )
    assert hub.files("ada/tidy") == {"c.safetensors": WEIGHTS, "d.safetensors": WEIGHTS}
    with pytest.raises(EntryNotFoundError):
        ada.create_commit("ada/tidy", [CommitOperationDelete("b")], commit_message="Delete twice")


@pytest.mark.parametrize("path", ["../up", "a//b", ".git/config"])
def test_a_path_that_leaves_the_repository_is_rejected(hub, path):
    hub.put("ada/paths", {})
    item_of_path = {"key": "file", "value": {"path": path, "content": "", "encoding": "base64"}}
    body = "\n".join(
        json.dumps(item)
        for item in ({"key": "header", "value": {"summary": "Message"}}, item_of_path)
    )
    response = httpx.post(
        f"{hub.url}/api/models/ada/paths/commit/main",
        content=body,
        headers={"Authorization": f"Bearer {hub.ADA}"},
    )
    assert response.status_code == 400


def test_a_malformed_request_is_rejected(hub):
    hub.put("ada/malformed", {})
    headers = {"Authorization": f"Bearer {hub.ADA}"}
    for path in (
        "api/models/ada/malformed/preupload/main",
        "ada/malformed.git/info/lfs/objects/batch",
        "api/models/ada/malformed/commit/main",
    ):
        for body in (b"", b"[]", b"{}", b'{"files": 1, "objects": 1}', b"\xff"):
            assert httpx.post(f"{hub.url}/{path}", content=body, headers=headers).status_code == 400
    assert httpx.get(f"{hub.url}/api/nothing").status_code == 404


def test_a_large_file_that_was_never_sent_cannot_be_committed(hub, ada):
    hub.put("ada/pointer", {})
    body = "".join(
        json.dumps(item) + "\n"
        for item in (
            {"key": "header", "value": {"summary": "Message", "description": ""}},
            {
                "key": "lfsFile",
                "value": {"path": "a.safetensors", "algo": "sha256", "oid": "0" * 64, "size": 3},
            },
        )
    )
    response = httpx.post(
        f"{hub.url}/api/models/ada/pointer/commit/main",
        content=body,
        headers={"Authorization": f"Bearer {hub.ADA}"},
    )
    assert response.status_code == 400
    assert "does not exist" in response.json()["error"]


def test_a_pull_request_is_rejected(hub, ada):
    hub.put("ada/no-requests", {})
    assert (
        get_error_status(
            ada.create_commit,
            "ada/no-requests",
            [add("a", b"1")],
            commit_message="Please",
            create_pr=True,
        )
        == 403
    )


def test_a_card_is_read_and_a_broken_one_rejected(hub, ada):
    hub.put("ada/card", {})
    with pytest.raises(ValueError, match="Invalid metadata"):
        ada.create_commit(
            "ada/card",
            [add("README.md", b"---\ntags: {a: 1}\n---\n")],
            commit_message="Invalid tags",
        )
    with pytest.raises(ValueError, match="YAML"):
        ada.create_commit(
            "ada/card", [add("README.md", b"---\na: [\n---\n")], commit_message="No YAML"
        )
    with pytest.warns(UserWarning, match="empty or missing yaml metadata"):
        ada.create_commit("ada/card", [add("README.md", b"# No card\n")], commit_message="No card")
    ada.create_commit(
        "ada/card",
        [add("README.md", README), add("model.safetensors", create_safetensors(a=6, b=4))],
        commit_message="Card",
    )
    info = ada.model_info("ada/card")
    assert (info.pipeline_tag, info.library_name, info.card_data.license) == (
        "translation",
        "transformers",
        "mit",
    )
    assert {
        TAG,
        "reverse",
        "transformers",
        "safetensors",
        "translation",
        "license:mit",
        "region:us",
    } == set(info.tags)
    assert (info.safetensors.total, info.safetensors.parameters) == (10, {"F32": 10})
    assert info.card_data.tags == [TAG, "reverse"]


# Permissions


def test_existing_repository_is_reported(hub, ada):
    ada.create_repo("ada/exists")
    assert get_error_status(ada.create_repo, "ada/exists") == 409
    assert ada.create_repo("ada/exists", exist_ok=True) == f"{hub.url}/ada/exists"
    assert ada.create_repo("unnamed").repo_id == "ada/unnamed"
    assert ada.create_repo("attention/exists").repo_id == "attention/exists"


def test_a_private_repository_is_hidden_from_others(hub, ada, outsider, anonymous, tmp_path):
    ada.create_repo("attention/secret", private=True)
    ada.create_commit(
        "attention/secret", [add("model.safetensors", WEIGHTS)], commit_message="Hidden"
    )
    ben = HfApi(endpoint=hub.url, token=hub.BEN)
    # the Hub responds with 401 to a request without a token
    for api, status in ((outsider, 404), (anonymous, 401)):
        assert not api.repo_exists("attention/secret")
        assert "attention/secret" not in [model.id for model in api.list_models()]
        for call in (
            lambda api=api: api.model_info("attention/secret"),
            lambda api=api: api.list_repo_files("attention/secret"),
            lambda api=api: api.list_repo_commits("attention/secret"),
            lambda api=api: api.create_commit(
                "attention/secret", [add("a", b"1")], commit_message="Mine"
            ),
            lambda api=api: api.hf_hub_download(
                "attention/secret", "model.safetensors", cache_dir=tmp_path
            ),
            lambda api=api: api.snapshot_download("attention/secret", cache_dir=tmp_path),
            lambda api=api: api.delete_repo("attention/secret"),
        ):
            with pytest.raises(RepositoryNotFoundError) as error:
                call()
            assert error.value.response.status_code == status
    for api in (ada, ben):
        assert api.model_info("attention/secret").private
        assert "attention/secret" in [model.id for model in api.list_models(author="attention")]
    with open(
        ben.hf_hub_download("attention/secret", "model.safetensors", cache_dir=tmp_path), "rb"
    ) as file:
        assert file.read() == WEIGHTS
    ada.update_repo_settings("attention/secret", private=False)
    assert anonymous.repo_exists("attention/secret")


def test_gated_repository_shows_its_card_but_not_its_files(hub, ada, outsider, anonymous, tmp_path):
    hub.put("ada/gated", {"config.json": "{}", "model.safetensors": WEIGHTS}, gated="manual")
    for api, status in ((outsider, 403), (anonymous, 401)):
        assert api.model_info("ada/gated").gated == "manual"
        for name in ("config.json", "model.safetensors"):
            with pytest.raises(GatedRepoError) as error:
                api.hf_hub_download("ada/gated", name, cache_dir=tmp_path)
            assert error.value.response.status_code == status
    with pytest.raises(GatedRepoError):
        outsider.auth_check("ada/gated")
    hub.repo("ada/gated").allowed_users.add("cy")
    outsider.auth_check("ada/gated")
    for api in (outsider, ada):
        with open(
            api.hf_hub_download("ada/gated", "model.safetensors", cache_dir=tmp_path), "rb"
        ) as file:
            assert file.read() == WEIGHTS


def test_only_users_with_write_access_write(hub, ada, outsider, anonymous):
    hub.put("attention/shared", {"step": "1"})
    change = {"operations": [add("step", b"2")], "commit_message": "Overwritten"}
    reader, ben = (HfApi(endpoint=hub.url, token=token) for token in (hub.ADA_READS, hub.BEN))
    for api, status in ((reader, 403), (ben, 403), (outsider, 403), (anonymous, 401)):
        assert get_error_status(api.create_commit, "attention/shared", **change) == status
        assert get_error_status(api.create_repo, "attention/forbidden") == status
        assert get_error_status(api.create_branch, "attention/shared", branch="b") == status
        assert get_error_status(api.delete_repo, "attention/shared") == status
    assert hub.files("attention/shared") == {"step": b"1"}
    assert get_error_status(outsider.create_repo, "ada/forbidden") == 403
    assert ben.create_repo("own").repo_id == "ben/own"


def test_a_deleted_repository_is_missing(hub, ada):
    hub.put("ada/deleted", {"a": "1"})
    ada.delete_repo("ada/deleted")
    assert not ada.repo_exists("ada/deleted")
    with pytest.raises(RepositoryNotFoundError):
        ada.delete_repo("ada/deleted")
    ada.delete_repo("ada/deleted", missing_ok=True)


# Lists


@pytest.fixture(scope="module")
def library(hub):
    for n in range(7):
        hub.put(
            f"library/digits-{n}",
            {"README.md": README if n % 2 else "---\ntags: [other]\n---\n"},
            likes=n,
            downloads=10 - n,
        )
    hub.put("library/words", {"README.md": README}, likes=100)
    hub.put("library/hidden", {"README.md": README}, private=True)


def test_models_are_searched_by_tag_author_and_name(hub, anonymous, library):
    def list_names(**filters):
        return [
            model.id.removeprefix("library/")
            for model in anonymous.list_models(author="library", **filters)
        ]

    assert list_names(filter=TAG, sort="likes") == ["words", "digits-5", "digits-3", "digits-1"]
    assert list_names(filter=[TAG, "reverse"], search="DIGITS", sort="downloads") == [
        "digits-1",
        "digits-3",
        "digits-5",
    ]
    assert list_names(filter="other", limit=2, sort="created_at") == ["digits-6", "digits-4"]
    assert list_names(filter="nothing") == []
    hub.put("library/digits-0", {"step": "1"})
    assert list_names(sort="last_modified", limit=1) == ["digits-0"]
    assert get_error_status(lambda: list(anonymous.list_models(sort="color"))) == 400
    (default_info,) = anonymous.list_models(author="library", search="words")
    assert (
        default_info.likes,
        default_info.downloads,
        default_info.siblings,
        default_info.card_data,
    ) == (100, 0, None, None)
    assert (default_info.pipeline_tag, default_info.library_name) == ("translation", "transformers")
    (full_info,) = anonymous.list_models(author="library", search="words", full=True, cardData=True)
    assert [file.rfilename for file in full_info.siblings] == [".gitattributes", "README.md"]
    assert full_info.card_data.tags == [TAG, "reverse"]
    assert full_info.last_modified.tzinfo == UTC
    (expanded_info,) = anonymous.list_models(
        author="library", search="words", expand=["likes", "cardData"]
    )
    assert (expanded_info.likes, expanded_info.card_data.license, expanded_info.downloads) == (
        100,
        "mit",
        None,
    )


def test_long_lists_come_in_pages(hub, anonymous, library, monkeypatch):
    monkeypatch.setattr(hub, "page_size", 3)
    with hub.record_requests() as requests:
        assert len({model.id for model in anonymous.list_models(author="library")}) == 8
    assert len(requests) == 3
    with hub.record_requests() as requests:
        assert len(list(anonymous.list_models(author="library", limit=2))) == 2
    assert len(requests) == 1
    hub.put("ada/many", {f"{n}/{n}": str(n) for n in range(5)})
    assert len(anonymous.list_repo_files("ada/many")) == 6
    assert len(anonymous.list_repo_commits("ada/many")) == 2


def test_a_dataset_and_a_model_may_have_the_same_name(hub, ada, anonymous, tmp_path):
    card = f"---\ntags: [{TAG}]\nlanguage: en\ntask_categories: [translation]\n---\n"
    url = ada.create_repo("ada/both", repo_type="dataset")
    assert (url, url.repo_type) == (f"{hub.url}/datasets/ada/both", "dataset")
    ada.create_commit(
        "ada/both",
        [
            add("README.md", card.encode()),
            add("rows.csv", b"a,b\n1,2\n"),
            add("rows.parquet", WEIGHTS),
        ],
        commit_message="Rows",
        repo_type="dataset",
    )
    assert not anonymous.repo_exists("ada/both")
    info = anonymous.dataset_info("ada/both")
    assert set(info.tags) == {TAG, "language:en", "task_categories:translation", "region:us"}
    actual = anonymous.list_datasets(
        author="ada", filter=TAG, task_categories="translation", search="both"
    )
    assert [dataset.id for dataset in actual] == ["ada/both"]
    snapshot_folder = snapshot_download(
        "ada/both", repo_type="dataset", endpoint=hub.url, cache_dir=tmp_path, token=False
    )
    for name, content in hub.files("ada/both", kind="dataset").items():
        with open(f"{snapshot_folder}/{name}", "rb") as file:
            assert file.read() == content
    hub.put("ada/both", {"config.json": "{}"})
    ada.delete_repo("ada/both", repo_type="dataset")
    assert anonymous.repo_exists("ada/both")
    assert not anonymous.repo_exists("ada/both", repo_type="dataset")


# Other processes


def test_transformers_loads_a_config_in_a_subprocess(hub, tmp_path):
    hub.put(
        "ada/config",
        {
            "config.json": json.dumps(
                {"model_type": "bert", "hidden_size": 48, "num_attention_heads": 4}
            )
        },
        private=True,
    )
    code = (
        "from transformers import AutoConfig; print(AutoConfig.from_pretrained('ada/config', "
        f"token={hub.ADA!r}).hidden_size)"
    )
    with hub.record_requests() as requests:
        completed = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | hub.environment(tmp_path / "home", token=hub.OWNER),
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert completed.stdout.strip() == "48", completed.stderr
    assert {request.token for request in requests} == {hub.ADA}


def test_a_token_of_the_environment_is_used_when_needed(hub, tmp_path):
    """Otherwise the test that this token is never sent proves nothing."""
    hub.put("ada/canary", {"config.json": "{}"})
    code = "from huggingface_hub import HfApi; print(HfApi().model_info('ada/canary').id)"
    for disabled, expected_tokens in (("1", {""}), ("0", {hub.OWNER})):
        with hub.record_requests() as requests:
            environment = hub.environment(
                tmp_path, token=hub.OWNER, HF_HUB_DISABLE_IMPLICIT_TOKEN=disabled
            )
            completed = subprocess.run(
                [sys.executable, "-c", code],
                env=os.environ | environment,
                capture_output=True,
                text=True,
                timeout=60,
            )
        assert completed.stdout.strip() == "ada/canary", completed.stderr
        assert {request.token for request in requests} == expected_tokens
    assert hub.requests_with(hub.OWNER)


# Faults


@pytest.mark.parametrize("status", [401, 403, 404, 409, 412, 429, 500, 503])
@pytest.mark.parametrize("route", ["CREATE", "COMMIT", "INFO"])
def test_fault_returns_the_requested_status(hub, ada, status, route):
    hub.put("ada/faulty", {"step": "1"})
    call = {
        "CREATE": lambda: ada.create_repo("ada/never"),
        "COMMIT": lambda: ada.create_commit(
            "ada/faulty", [add("step", b"2")], commit_message="Never"
        ),
        "INFO": lambda: ada.model_info("ada/faulty"),
    }[route]
    with (
        hub.fault(getattr(hub, route), status, times=1) as fault,
        pytest.raises(HfHubHTTPError) as error,
    ):
        call()
    assert fault.hits == 1
    response = error.value.response
    assert response.status_code == status
    assert response.headers.get("Retry-After") == ("86400" if status == 429 else None)
    assert hub.files("ada/faulty") == {"step": b"1"}
    assert not ada.repo_exists("ada/never")


def test_fault_counts_its_hits_and_ends(hub, ada):
    hub.put("ada/counted", {})
    fault = hub.fault(hub.INFO, 503, times=2)
    assert [get_error_status(ada.model_info, "ada/counted") for _ in range(2)] == [503, 503]
    assert ada.model_info("ada/counted").id == "ada/counted"
    assert fault.hits == 2
    hub.fault(hub.INFO, 500)
    hub.fault(hub.INFO, 404, times=1, code="RepoNotFound")
    with pytest.raises(RepositoryNotFoundError):
        ada.model_info("ada/counted")
    assert get_error_status(ada.model_info, "ada/counted") == 500
    hub.clear_faults()
    assert ada.model_info("ada/counted").id == "ada/counted"
    with pytest.raises(ValueError, match="a fault is"):
        hub.fault(hub.INFO, "explode")


def test_fault_can_return_an_html_page(hub, ada):
    hub.put("ada/gateway", {})
    with hub.fault(hub.INFO, 503, page=True), pytest.raises(HfHubHTTPError) as error:
        ada.model_info("ada/gateway")
    assert error.value.response.headers["Content-Type"] == "text/html"


def test_fault_resets_the_connection(hub, ada):
    hub.put("ada/reset", {})
    with hub.fault(hub.INFO, "reset", times=1), pytest.raises(httpx.HTTPError):
        ada.model_info("ada/reset")
    assert ada.model_info("ada/reset").id == "ada/reset"


def test_fault_loses_the_response_of_a_finished_commit(hub, ada):
    hub.put("ada/lost", {"step": "1"})
    with hub.fault(hub.COMMIT, "lost", times=1), pytest.raises(httpx.HTTPError):
        ada.create_commit("ada/lost", [add("step", b"2")], commit_message="Response lost")
    assert hub.files("ada/lost") == {"step": b"2"}


@pytest.mark.parametrize("kind", ["silent", "hang"])
def test_silent_fault_lasts_until_a_timeout_or_until_it_is_cleared(hub, ada, kind):
    hub.put("ada/silent", {"README.md": README})
    with hub.fault(hub.INFO, kind), pytest.raises(httpx.TimeoutException):
        ada.model_info("ada/silent", timeout=0.2)
    fault, errors = hub.fault(hub.INFO, kind), []

    def send_request():
        try:
            ada.model_info("ada/silent")
        except httpx.HTTPError as error:
            errors.append(error)

    thread = threading.Thread(target=send_request)
    thread.start()
    while not fault.hits:
        time.sleep(0.01)
    assert thread.is_alive()
    hub.clear_faults()
    thread.join(60)
    assert len(errors) == 1
    assert ada.model_info("ada/silent").id == "ada/silent"


def test_truncated_download_is_retried(hub, tmp_path):
    hub.put("ada/cut", {"model.safetensors": WEIGHTS})
    with (
        hub.fault(hub.STORAGE, "cut", times=1, method="GET") as fault,
        hub.record_requests() as requests,
    ):
        path = hf_hub_download(
            "ada/cut", "model.safetensors", endpoint=hub.url, cache_dir=tmp_path, token=False
        )
    assert fault.hits == 1
    with open(path, "rb") as file:
        assert file.read() == WEIGHTS
    assert [request.method for request in requests if request.host == hub.storage_host] == [
        "GET",
        "GET",
    ]


def test_failed_upload_is_retried(hub, ada):
    hub.put("ada/again", {})
    with hub.fault(hub.UPLOAD, 500, times=1, method="PUT") as fault:
        ada.create_commit(
            "ada/again", [add("model.safetensors", WEIGHTS)], commit_message="At the second try"
        )
    assert fault.hits == 1
    assert hub.files("ada/again") == {"model.safetensors": WEIGHTS}


def test_slow_response_arrives(hub, ada):
    hub.put("ada/slow", {})
    with hub.fault(hub.INFO, "slow", seconds=0.3):
        with pytest.raises(httpx.TimeoutException):
            ada.model_info("ada/slow", timeout=0.05)
        assert ada.model_info("ada/slow").id == "ada/slow"


def test_an_unreachable_hub():
    with FakeHub() as removed:
        removed.put("ada/removed", {"a": "1"})
        assert HfApi(endpoint=removed.url, token=False).repo_exists("ada/removed")
    with pytest.raises(httpx.ConnectError):
        HfApi(endpoint=removed.url, token=False).model_info("ada/removed")
