"""Build hook of the wheel: the modules that every record runs through are compiled with mypyc, where that can be done.

They are listed in pyproject.toml. The same source runs interpreted in a work tree: an editable install is never compiled, as
a compiled module beside an edited one would hide the edit. The wheel holds both, and Python takes the compiled one.

    TOCSIN_COMPILE=0    a wheel of pure Python
    TOCSIN_COMPILE=1    a compiled wheel, or no wheel
    not set             compiled if there are mypy, setuptools and a C compiler, else pure Python with a warning

mypyc reads the types of what the modules import, so msgspec, numpy and tocsin must be importable while they are compiled:
build without isolation, in the environment in which they are checked. What was compiled is kept below .cache/mypyc.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

GROUP = "tocsin_server"
"""The library with the code of all modules is `<GROUP>__mypyc`; beside each module lies a small one that asks it for its."""
PACKAGES = ("collector", "rules", "alerts", "service")
NEEDED = ("mypy", "setuptools", "msgspec", "numpy")


class CannotCompile(Exception):
    """Something that compiling needs is not here, or it failed; the text says which."""


def libraries(root: Path, modules: list[str]) -> dict[Path, str]:
    """The compiled libraries, and where in the wheel each of them goes. Raises CannotCompile."""
    kept = root / ".cache" / "mypyc" / _fingerprint(root, modules)
    if not kept.is_dir():
        with tempfile.TemporaryDirectory() as folder:
            built = _compile(root, modules, Path(folder))
            kept.parent.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(dir=kept.parent))
            shutil.copytree(built, partial, dirs_exist_ok=True)
        try:
            partial.rename(kept)
        except OSError:  # somebody else was faster
            shutil.rmtree(partial)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return {path: str(path.relative_to(kept)) for path in sorted(kept.rglob(f"*{suffix}"))}


def _compile(root: Path, modules: list[str], folder: Path) -> Path:
    """Compiles in a copy of the sources, so that nothing is written into theirs; the folder with the libraries."""
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise CannotCompile(f"{', '.join(missing)} cannot be imported")
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(os.environ.get("CC", compiler).split()[0]) is None:
        raise CannotCompile("there is no C compiler")
    sources = folder / "sources"
    for package in PACKAGES:
        shutil.copytree(root / package, sources / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", sources)  # mypy's settings: what is compiled is what is checked
    if (client := root / "client" / "src").is_dir():
        shutil.copytree(client, sources / "client" / "src", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), str(folder / "libraries"), *modules],
        cwd=sources,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        raise CannotCompile(f"mypyc failed:\n{done.stdout[-4000:]}")
    return folder / "libraries"


def _fingerprint(root: Path, modules: list[str]) -> str:
    """Another one whenever the libraries would be others."""
    seen = hashlib.sha256()
    tools = [_version(name) for name in (*NEEDED, "tocsin")]
    flags = [os.environ.get(name, "") for name in ("CC", "CFLAGS")]
    seen.update(repr([sys.version, platform.machine(), tools, flags, modules]).encode())
    for path in _read(root, modules):
        seen.update(f"\n{path.relative_to(root)}\n".encode())
        seen.update(path.read_bytes())
    return seen.hexdigest()[:24]


def _read(root: Path, modules: list[str]) -> Iterator[Path]:
    """What mypyc may read: the packages of the modules, and the client, whose records they take."""
    yield Path(__file__).resolve()
    for top in sorted({module.partition("/")[0] for module in modules} | {"client/src/tocsin"}):
        yield from sorted((root / top).rglob("*.py"))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _run_mypyc(target: str, modules: list[str]) -> None:
    """In a process of its own, in the folder of the sources."""
    from mypyc.build import mypycify
    from setuptools import setup  # type: ignore[import-untyped]  # its stubs are a package that nothing else here needs

    setup(
        name=GROUP,
        packages=[],
        py_modules=[],
        ext_modules=mypycify(modules, opt_level="3", debug_level="0", group_name=GROUP),
        script_args=["-q", "build_ext", "--build-lib", target],
    )


def _hook() -> type[Any]:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class CompiledWheel(BuildHookInterface):  # type: ignore[type-arg]  # its parameter is the builder's configuration
        """Adds the compiled libraries to the wheel."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            wish = os.environ.get("TOCSIN_COMPILE", "")
            if self.target_name != "wheel" or version == "editable" or wish == "0":
                return
            modules = list(self.config["modules"])
            try:
                found = libraries(Path(self.root), modules)
            except CannotCompile as error:
                if wish == "1":
                    raise
                self.app.display_warning(f"this wheel is pure Python, half as fast as a compiled one: {error}")
                return
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"].update({str(path): place for path, place in found.items()})

    return CompiledWheel


if __name__ == "__main__":
    _run_mypyc(sys.argv[1], sys.argv[2:])
else:
    CompiledWheel = _hook()
