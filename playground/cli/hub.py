"""push, pull, reproduce and gallery: commands for the Hub."""

import json
from pathlib import Path
from typing import Any

import click

from playground.checkpoints.manifest import read_manifest
from playground.common.storage import checkpoints_root
from playground.hub.repo_ids import check_license, check_repo, check_revision, machine_token

from .common import (
    check_output_dir,
    checkpoint_argument,
    exit_with_error,
    json_option,
    output_option,
    record_signals,
)


@click.command()
@checkpoint_argument
@click.argument("repo", metavar="USER/NAME")
@click.option("--private", is_flag=True, help="Make a new repository private.")
@click.option(
    "--license",
    "license",
    default="",
    metavar="ID",
    help=(
        "The license of the model, such as mit or cc-by-4.0. [default: mit for built-in tasks; "
        "that of the source dataset for a dataset from the Hub; none for other datasets]"
    ),
)
@click.option(
    "--page",
    is_flag=True,
    help="Also publish a page that runs the model, as a static Space of this name.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="List every file and what would happen to it; write nothing. Needs no account.",
)
@json_option
def push(
    checkpoint: Path, repo: str, license: str, dry_run: bool, as_json: bool, **options: bool
) -> None:
    """Publish a checkpoint on the Hugging Face Hub, in one commit."""
    from playground.hub.formats import package_format

    check_repo(repo)
    package_format(read_manifest(checkpoint).config.architecture)
    run = checkpoint.parent.parent
    is_of_run = checkpoint.parent.name == "checkpoints" and (run / "run.json").is_file()
    result = run_hub_task(
        needed=not dry_run,
        kind="plan" if dry_run else "push",
        license=check_license(license),
        repo=repo,
        **options,
        checkpoint=str(checkpoint.resolve()),
        run_folder=str(run) if is_of_run else "",
    )
    if as_json:
        result.pop("card", None)
        click.echo(json.dumps(result))
        return
    print_plan(result, dry_run)


def print_plan(result: dict[str, Any], dry_run: bool) -> None:
    """Print each file with what was done, or would be done."""
    for plan in filter(None, (result["plan"], result["space"])):
        what = "Space" if plan["kind"] == "space" else "model"
        whose = "private" if plan["private"] else "public"
        state = "exists" if plan["exists"] else "would be created" if dry_run else "was created"
        click.echo(f"{what} {plan['repo']} ({whose}): {state}")
        for change in plan["changes"]:
            click.echo(f"  {change['status']:8}{change['size']:>12,} bytes  {change['path']}")
    for note in result.get("notes", ()):
        click.echo(f"playground: {note}", err=True)
    if not result.get("compared", True):
        click.echo("no token was found, so this was not compared with the Hub", err=True)
    click.echo("nothing was written" if dry_run else result["url"])
    if result["space"] and not dry_run:
        click.echo(result["space"]["url"])


@click.command()
@click.argument("repo", metavar="USER/NAME")
@click.option("--revision", default="main", show_default=True, help="A branch, a tag or a commit.")
@output_option("The folder. [default: checkpoints/NAME]", required=False)
@json_option
def pull(repo: str, revision: str, out: Path | None, as_json: bool) -> None:
    """Download a published model as a checkpoint; every file is validated."""
    check_repo(repo)
    check_revision(revision)
    out = out or checkpoints_root() / repo.rpartition("/")[2]
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        exit_with_error(
            f"--out {out} already exists and stays as it is; choose a new or an empty folder"
        )
    check_output_dir(out, keeps_existing=True)
    result = run_hub_task(kind="pull", repo=repo, revision=revision, destination=str(out.resolve()))
    if as_json:
        click.echo(
            json.dumps({"checkpoint": str(out), "commit": result["commit"], "step": result["step"]})
        )
    else:
        click.echo(
            f"{out}: {result['task']}, {result['parameters']:,} parameters, step {result['step']}, "
            f"commit {result['commit'][:12]}"
        )


@click.command()
@click.argument("repo", metavar="USER/NAME")
@click.option("--revision", default="main", show_default=True, help="A branch, a tag or a commit.")
@json_option
def reproduce(repo: str, revision: str, as_json: bool) -> None:
    """Evaluate a published model, and compare the result with its card.

    The exit code is 1 if they differ.
    """
    check_repo(repo)
    check_revision(revision)
    result = run_hub_task(kind="reproduce", repo=repo, revision=revision)
    card, measured = result["card"], result["measured"]
    if as_json:
        scores = {"card": card, "measured": measured}
        click.echo(json.dumps({"repo": repo, "commit": result["commit"]} | scores))
    else:
        text = f"{card['exact_match']:.2%}" if card else "no score"
        text += f" of {card['n']:,}" if card and card.get("n") else ""
        click.echo(
            f"the card reports {text}; measured here {measured['exact_match']:.2%} of "
            f"{measured['n']:,} held-out sequences"
        )
    if card and abs(card["exact_match"] - measured["exact_match"]) >= 0.5 / measured["n"]:
        raise SystemExit(1)


@click.command()
@json_option
def gallery(as_json: bool) -> None:
    """List the models on the Hub that carry the playground's tag, most liked first."""
    models = run_hub_task(kind="gallery")["models"]
    if as_json:
        click.echo(json.dumps(models))
        return
    for model in models:
        exact = "" if model["exact_match"] is None else f"{model['exact_match']:.2%}"
        size = "" if model["parameters"] is None else f"{model['parameters']:,} parameters"
        click.echo(
            f"{model['repo']:40} {model['task']:16} {size:>23} {exact:>8} {model['likes']:>5} likes"
        )
    if not models:
        click.echo("no model has the playground's tag yet")


def run_hub_task(needed: bool = False, **task_fields: Any) -> dict[str, Any]:
    """Run a Hub operation and return its result; progress goes to stderr. A signal ends it.

    Without a token, a plan becomes a preview, which sends no authenticated request.
    """
    from playground.hub.jobs import HubJobs
    from playground.hub.tasks import HubTask

    token = machine_token()
    if needed and not token:
        exit_with_error(
            "publishing needs a token with write access: run `hf auth login`, or set HF_TOKEN"
        )
    if task_fields["kind"] == "plan" and not token:
        task_fields["kind"] = "preview"
    interrupted = record_signals()
    queue = HubJobs(fresh=True)
    job = queue.start(
        HubTask(**task_fields, token=token),
        on_progress=lambda job: click.echo(f"{job.message} ...", err=True),
    )
    while not job.released.wait(0.2):  # until its temporary folder is removed
        if interrupted:
            queue.cancel(job)
    if job.result is None:
        click.echo(f"playground: {job.message}", err=True)
        raise SystemExit(128 + interrupted[0] if interrupted else 1)
    return job.result
