import dataclasses
import json
import logging
import shutil
import tempfile
import unicodedata

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from playground.checkpoints.checkpoint import load_model, save_checkpoint
from playground.checkpoints.manifest import CheckpointError
from playground.hub.export import build_package, checkpoint_from_package, tokenizer
from playground.hub.formats import PACKAGE_FORMATS
from playground.models.config import TransformerConfig
from playground.models.transformer import AttentionWeights
from playground.runs.replay import REPLAY_FILE
from playground.tasks import EOS, PAD, UnknownSymbolError, Vocabulary, load_task
from playground.tasks.held_out import build_held_out_set
from playground.tasks.vocabulary import normalize
from playground.training.task_config import TaskConfig
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT
from tests.support.auto_classes import register
from tests.support.files import read_files

REVERSE = ROOT / "checkpoints/reverse"
MODULES = "attention automodel automodel_base config config_fields embeddings feed_forward "
MODULES += "initialization kv_cache layers position_encoding transformer"
CODE = {f"{name}.py" for name in MODULES.split()}
FILES = CODE | {
    *("LICENSE", "config.json", "generation_config.json", "model.safetensors", "playground.json"),
    *("metrics.jsonl", "tokenizer.json", "tokenizer_config.json"),
}


@pytest.fixture(autouse=True, scope="module")
def registered_classes():
    register(PACKAGE_FORMATS["transformer"])


@pytest.fixture
def log_messages():
    """Record the warnings and errors that transformers logs."""
    log_messages = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: log_messages.append(record.getMessage())
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    yield log_messages
    logger.removeHandler(handler)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Build the package of the bundled checkpoint `reverse`."""
    folder = tmp_path_factory.mktemp("package")
    build_package(REVERSE, folder)
    return folder


@pytest.fixture(scope="module")
def unusual(small_run, tmp_path_factory):
    """Save a checkpoint with many non-default settings and 40 symbols."""
    sizes = {
        "n_symbols": 40,
        "d_model": 8,
        "n_heads": 2,
        "d_ff": 8,
        "max_steps": 4,
        "batch_size": 8,
    }
    sizes |= dict.fromkeys(("source_vocab_size", "target_vocab_size"), 43)
    switches = dict.fromkeys(("share_embeddings", "tie_output_embeddings"), True)
    switches |= {"norm_placement": "post", "position_type": "sinusoidal", "attention_bias": False}
    trainer = Trainer(small_run.replace(**sizes, **switches))
    metrics = [trainer.train_step()]
    folder = tmp_path_factory.mktemp("unusual") / "checkpoint"
    save_checkpoint(folder, trainer, metrics, trainer.evaluate(20))
    return folder


@pytest.fixture
def copied(package, tmp_path):
    """Copy the package, so that a test may damage it."""
    return shutil.copytree(package, tmp_path / "copied")


def published_contents(folder):
    """Return the files of a checkpoint that a package contains: all but the replay."""
    return {name: data for name, data in read_files(folder).items() if name != REPLAY_FILE}


# Contents of a package


def test_a_package_has_the_files_for_loading_it_and_no_others(package):
    assert {path.name for path in package.iterdir()} == FILES
    for name in CODE:
        assert (package / name).read_bytes() == (ROOT / "playground/models" / name).read_bytes()
    for name in ("model.safetensors", "metrics.jsonl"):
        assert (package / name).read_bytes() == (REVERSE / name).read_bytes()
    assert (package / "playground.json").read_bytes() == (REVERSE / "config.json").read_bytes()


def test_the_config_has_every_size_and_its_class(package):
    config = json.loads((package / "config.json").read_text())
    sizes = json.loads((REVERSE / "config.json").read_text())["model"]
    # includes settings that the old file does not have
    settings = dataclasses.asdict(TransformerConfig(**sizes))
    assert {name: config[name] for name in settings} == settings
    assert config["auto_map"] == {
        "AutoConfig": "automodel.PlaygroundConfig",
        "AutoModel": "automodel.PlaygroundForSeq2SeqLM",
        "AutoModelForSeq2SeqLM": "automodel.PlaygroundForSeq2SeqLM",
    }
    assert (config["architectures"], config["dtype"]) == (["PlaygroundForSeq2SeqLM"], "float32")
    assert json.loads((package / "generation_config.json").read_text())["max_length"] == 12


def test_a_damaged_checkpoint_is_not_packaged(tmp_path):
    broken = shutil.copytree(REVERSE, tmp_path / "broken")
    with open(broken / "model.safetensors", "r+b") as file:
        file.truncate(100_000)
    with pytest.raises(CheckpointError, match="file not fully covered"):
        build_package(broken, tmp_path / "package")
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        build_package(tmp_path / "nowhere", tmp_path / "package")


# From a package to a checkpoint


def test_other_files_of_a_package_are_not_copied(copied, tmp_path):
    (copied / "README.md").write_text("# A card")
    (copied / "pytorch_model.bin").write_bytes(b"\x80\x04")
    config = json.loads((copied / "config.json").read_text())
    # only playground.json is read
    (copied / "config.json").write_text(json.dumps(config | {"d_model": 4096, "n_layers": 48}))
    checkpoint_from_package(copied, tmp_path / "checkpoint")
    assert read_files(tmp_path / "checkpoint") == published_contents(REVERSE)


@pytest.mark.parametrize(
    ("harm", "message"), [("weights", "not fully covered"), ("sizes", "expected")]
)
def test_a_broken_package_leaves_no_checkpoint(copied, tmp_path, harm, message):
    if harm == "weights":
        with open(copied / "model.safetensors", "r+b") as file:
            file.truncate(100_000)
    else:
        manifest = json.loads((copied / "playground.json").read_text())
        manifest["model"]["d_ff"] = 64
        (copied / "playground.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=message):
        checkpoint_from_package(copied, tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()


# Tokens


def test_tokenizer_encodes_as_the_vocabulary(package, log_messages):
    loaded = AutoTokenizer.from_pretrained(package)
    vocabulary = Vocabulary("0123456789")
    for text in ("3 1 4", "314", "3,1,4", " 3,  1 4\n", "0 1 2 3 4 5 6 7 8 9", ""):
        assert loaded.encode(text, add_special_tokens=False) == vocabulary.encode(text)
        result = loaded(text)
        assert set(result) == {"input_ids", "attention_mask"}
        assert result["input_ids"] == [*vocabulary.encode(text), EOS]
    assert loaded(text_target="4 1 3")["input_ids"] == [*vocabulary.encode("4 1 3"), EOS]
    assert loaded.decode([1, 7, 4, 6, 2, 0, 0], skip_special_tokens=True) == "4 1 3"
    special = loaded.pad_token_id, loaded.bos_token_id, loaded.eos_token_id
    assert (*special, len(loaded)) == (0, 1, 2, 13)
    padded = loaded(["3 1 4", "5"], padding=True, return_tensors="pt")
    assert padded["input_ids"].tolist() == [[6, 4, 7, 2], [8, 2, 0, 0]]
    assert padded["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert log_messages == []


# Every character that a dataset may contain, and the ones that could be taken for something else.
RISKY = "<EOSPAD>, é\u0301\u1df6\u0316\u200c\u200f\u202e\u00ad\u200b\ufe0f\u0958\ud7a3\u1100\u1161"
CHARACTERS = st.one_of(st.sampled_from(RISKY), st.characters(exclude_categories=["Cc", "Cs"]))
WORDS = st.one_of(
    CHARACTERS,
    st.text(CHARACTERS, min_size=1, max_size=6),
    st.sampled_from(["<EOS>", "<SOS>", "<PAD>", "< EOS >", "x<EOS>"]),
    st.sampled_from(["e\u0301", "a\u1df6\u0316", "E,O"]),
)
DISTURBANCES = [
    *("", " ", ",", "\t\r\n", "\x1c\x1f\x85", "\xa0\u2028\u3000", "\0", "\ud800", "\U0010ffff"),
    *("<EOS>", "<SOS>", "<PAD>", "< EOS >", "EOS", "nowhere", "\u0301", "\u0338"),
]


@st.composite
def vocabularies(draw):
    """Return the vocabulary of a text of words, or of characters, as a dataset has it."""
    text = normalize(" ".join(draw(st.lists(WORDS, min_size=1, max_size=12))))
    symbols = {*text.split()} if draw(st.booleans()) else {*"".join(text.split())}
    symbols -= {"EOS", "SOS", "PAD"}
    assume(symbols)
    return tuple(sorted(symbols))


def token_ids(encode, text):
    """Return the token ids of a text, or None if it is rejected."""
    try:
        return list(encode(text))
    except UnknownSymbolError:
        return None
    except Exception as error:  # the class of `tokenizers`; TypeError for an unpaired surrogate
        if "WordLevel" in str(error) or isinstance(error, TypeError):
            return None
        raise


@given(st.data(), vocabularies(), st.sampled_from(["NFC", "NFD"]))
def test_a_text_has_the_same_token_ids_in_app_package_and_checkpoint(data, symbols, form):
    task = TaskConfig("dataset", dataset_sha256="0" * 64, dataset_symbols=" ".join(symbols))
    vocabulary = task.load().vocabulary
    reloaded = TaskConfig(**json.loads(json.dumps(dataclasses.asdict(task)))).load().vocabulary
    with tempfile.TemporaryDirectory() as folder:
        tokenizer(vocabulary, 20).save_pretrained(folder)
        published = AutoTokenizer.from_pretrained(folder)
    part = st.one_of(st.sampled_from(symbols), st.sampled_from(DISTURBANCES))
    for separator in (" ", data.draw(st.sampled_from(["", ",", ", "]))):
        known = separator.join(data.draw(st.lists(st.sampled_from(symbols), max_size=8)))
        mixed = separator.join(data.draw(st.lists(part, max_size=8)))
        for text in (known, mixed, unicodedata.normalize(form, mixed)):
            ids = token_ids(vocabulary.encode, text)
            assert token_ids(reloaded.encode, text) == ids
            ended = None if ids is None else [*ids, EOS]
            assert token_ids(lambda text: published(text)["input_ids"], text) == ended
            if ended is not None:
                decoded = published.decode(ended, skip_special_tokens=True)
                assert decoded == " ".join(vocabulary.decode(ids))
        if separator == " ":
            assert token_ids(vocabulary.encode, known) is not None


# The model


def test_every_setting_survives_publication(unusual, tmp_path, log_messages):
    (tmp_path / "package").mkdir()
    build_package(unusual, tmp_path / "package")
    model = AutoModelForSeq2SeqLM.from_pretrained(
        tmp_path / "package", trust_remote_code=False, use_safetensors=True
    )
    _, family = load_model(unusual)
    batch = build_held_out_set(load_task("reverse", 40), 100, 1, 5).batch
    with torch.no_grad():
        inputs = {"input_ids": batch.source_BS, "decoder_input_ids": batch.decoder_input_BT}
        result = model(**inputs, output_attentions=True)
        record = AttentionWeights()
        logits_BTV = family(batch.source_BS, batch.decoder_input_BT, record)
    assert torch.allclose(result.logits, logits_BTV, atol=1e-6, rtol=0)
    assert torch.allclose(result.cross_attentions[-1], record.cross[-1], atol=1e-6, rtol=0)
    mask_BS = (batch.source_BS != PAD).long()
    generated_BT = model.generate(input_ids=batch.source_BS, attention_mask=mask_BS)[:, 1:]
    expected_BT = family.generate(batch.source_BS, 6)[:, : generated_BT.shape[1]]
    assert torch.equal(generated_BT, expected_BT)
    assert log_messages == []
