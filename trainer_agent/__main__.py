"""``python -m trainer_agent profile``: measures a user's layers and writes the job with their costs."""

from __future__ import annotations

import argparse
import importlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from dip.errors import DipError
from google.protobuf.json_format import MessageToJson

from trainer_agent.errors import ProfileError, TrainerAgentError
from trainer_agent.profiler import DEFAULT_REPEATS, ProfileTarget, profile_layers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_agent.profiler import Units


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 where it worked, 2 where its input is at fault."""
    options = _parser().parse_args(arguments)
    try:
        target = load_target(options.build)
        if options.units:
            target = replace(target, units=parse_units(options.units))
        if options.threads:
            torch.set_num_threads(options.threads)
        spec = profile_layers(
            target,
            device=options.device,
            repeats=options.repeats,
            strategies=tuple(filter(None, options.strategies.split(","))),
            progress=lambda line: print(line, file=sys.stderr, flush=True),
        )
    except (TrainerAgentError, DipError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = MessageToJson(spec, preserving_proto_field_name=True) + "\n"
    if options.output == "-":
        print(text, end="")
        return 0
    try:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        print(f"error: cannot write {options.output}: {error.strerror}", file=sys.stderr)
        return 2
    print(f"wrote {options.output}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainer_agent", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    profile = commands.add_parser("profile", help="measure the costs of a model's layers")
    profile.add_argument(
        "--build",
        required=True,
        metavar="PACKAGE.MODULE:FACTORY",
        help="a function without arguments that returns a trainer_agent.profiler.ProfileTarget",
    )
    profile.add_argument(
        "--units",
        action="append",
        metavar="[MODULE=]N,N,..",
        help="sizes to measure at, ascending, for all modules or once for each; as the factory says where not given",
    )
    profile.add_argument(
        "--repeats", type=int, default=DEFAULT_REPEATS, help="measurements of each figure (%(default)s)"
    )
    profile.add_argument(
        "--strategies", default="recompute", help="ways to keep less, by commas: recompute, offload (%(default)s)"
    )
    profile.add_argument("--device", default="cpu", help="where to measure (%(default)s)")
    profile.add_argument("--threads", type=int, default=0, help="threads of torch; as many as a rank will have")
    profile.add_argument("-o", "--output", default="-", help="file for the JobSpec as JSON; - prints it (%(default)s)")
    return parser


def load_target(path: str) -> ProfileTarget:
    """Import the factory ``package.module:name`` and call it.

    Raises
    ------
    ProfileError
        There is no such factory, or it returns something else.
    """
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise ProfileError(f"--build: {path!r}; must be package.module:factory")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ProfileError(f"--build: cannot import {module_name!r}: {error}") from error
    factory = getattr(module, name, None)
    if not callable(factory):
        raise ProfileError(f"--build: {module_name!r} has no function {name!r}")
    target: object = factory()
    if not isinstance(target, ProfileTarget):
        raise ProfileError(f"--build: {path} returned a {type(target).__name__}; must be a ProfileTarget")
    return target


def parse_units(texts: Sequence[str]) -> Units:
    """Read ``N,N,..`` or several ``module=N,N,..``.

    Raises
    ------
    ProfileError
        Neither, or both.
    """
    by_module: dict[str, tuple[int, ...]] = {}
    for text in texts:
        module, equals, numbers = text.rpartition("=")
        try:
            by_module[module if equals else ""] = tuple(int(number) for number in numbers.split(","))
        except ValueError:
            raise ProfileError(f"--units: {text!r}; must be whole numbers, like 64,256 or vision=64,256") from None
    if "" in by_module and len(by_module) > 1:
        raise ProfileError(f"--units: {list(texts)}; name a module in all of them or in none")
    return by_module.get("", by_module)


if __name__ == "__main__":
    sys.exit(main())
