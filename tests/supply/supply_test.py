# SPDX-License-Identifier: Apache-2.0
"""What users get, as files: dependencies, bill of materials, release archive, the library's public symbols, what it imports,
how it is hardened.
    supply_test.py dependencies | sbom | dist
    supply_test.py symbols|imports LIBOCTILE
    supply_test.py hardening FILE...   (an archive: what its objects are marked with)"""

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import sbom  # noqa: E402

SKIPPED = 77


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def require(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"does not hold: {what}")


def check_dependencies() -> None:
    rows = sbom.read_table()
    packages = {name.strip().lower() for row in rows for name in row["package"].split(",")}
    names = {row["name"].lower() for row in rows}
    # Debian packages that are installed by the build.
    setup = (ROOT / "scripts" / "setup.sh").read_text(encoding="utf-8")
    wanted = set(" ".join(re.findall(r'packages="([^"]*)"', setup)).replace("$packages", "").split())
    # PyPI's.
    requirements = [*ROOT.glob("tests/**/requirements.txt"), *ROOT.glob("src/**/requirements.txt")]
    for file in requirements:
        wanted |= {re.split(r"[<>=~\s]", line)[0] for line in file.read_text(encoding="utf-8").splitlines() if line}
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for quoted in re.findall(r"^(?:requires|dependencies|torch) = \[(.*)\]$", pyproject, re.MULTILINE):
        wanted |= {re.split(r"[<>=~]", name)[0] for name in re.findall(r'"([^"]+)"', quoted)}
    missing = sorted(name for name in wanted if name.lower() not in packages)
    require(not missing, f"docs/dependencies.md has every package that is installed; it lacks {missing}")
    # What CMake looks for.
    known = {
        "threads": "glibc",
        "nlohmann_json": "json for modern c++",
        "gtest": "googletest",
        "pkgconfig": "pkg-config",
        "git": None,
        "benchmark": "google benchmark",
        "octile": None,
    }
    files = [ROOT / "CMakeLists.txt", *ROOT.glob("cmake/*.cmake"), *ROOT.glob("tests/*.cmake"), ROOT / "tests/CMakeLists.txt"]
    for file in files:
        for found in re.findall(r"^\s*find_package\((\w+)", file.read_text(encoding="utf-8"), re.MULTILINE):
            name = known.get(found.lower(), found.lower())
            require(name is None or name in names, f"docs/dependencies.md has {found}, which {file.name} looks for")
    print(f"{len(rows)} dependencies, {len(wanted)} packages, all in docs/dependencies.md")


def check_sbom() -> None:
    with tempfile.TemporaryDirectory() as folder:
        texts = []
        for name in ("one.json", "two.json"):
            path = Path(folder) / name
            subprocess.run([sys.executable, str(ROOT / "scripts" / "sbom.py"), str(path)], check=True)
            texts.append(path.read_bytes())
    require(texts[0] == texts[1], "a bill of materials written twice has the same bytes")
    bill = json.loads(texts[0])
    require(bill["bomFormat"] == "CycloneDX" and bill["specVersion"] == "1.5", "it is CycloneDX 1.5")
    require(
        re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"]) is not None,
        f"the serial number is a UUID: {bill['serialNumber']}",
    )
    references = [one["bom-ref"] for one in bill["components"]]
    require(len(set(references)) == len(references) > 10, f"each component is there once: {references}")
    require(bill["dependencies"] == [{"ref": "octile", "dependsOn": references}], "octile depends on each")
    for one in bill["components"]:
        require(bool(one["version"]) and bool(one["licenses"]), f"{one['name']} has a version and a licence")


def check_dist() -> None:
    inside = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--verify", "HEAD"], capture_output=True, check=False)
    if inside.returncode != 0:
        print("no git checkout here")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder:
        archives = []
        # Another time zone, umask and language must not show.
        for name, zone, mask in (("one", "UTC", 0o022), ("two", "Pacific/Auckland", 0o077)):
            environment = {**os.environ, "TZ": zone, "LC_ALL": "C"}
            subprocess.run(
                [str(ROOT / "scripts" / "dist.sh"), f"{folder}/{name}"],
                check=True,
                env=environment,
                umask=mask,
                stdout=subprocess.DEVNULL,
            )
            archives.append(next(Path(folder, name).glob("*.tar.gz")))
        require(archives[0].name == f"octile-{sbom.project_version()}.tar.gz", f"the version is in the name: {archives[0]}")
        require(archives[0].read_bytes() == archives[1].read_bytes(), "an archive made twice has the same bytes")
        listed = output_of("tar", "tzf", str(archives[0])).splitlines()
    prefix = f"octile-{sbom.project_version()}/"
    require(all(name.startswith(prefix) for name in listed), "everything is in one folder")
    for name in ("LICENSE", "README.md", "CMakeLists.txt", "include/octile/octile.h", "docs/dependencies.md"):
        require(prefix + name in listed, f"{name} is there")


def exported(library: str) -> list[str]:
    lines = output_of("nm", "-D", "--defined-only", library).splitlines()
    return sorted(line.split()[-1].split("@")[0] for line in lines)


def check_symbols(library: str) -> None:
    """Against the list in the tree; OCTILE_WRITE_SYMBOLS=1 writes it anew, for a change of the interface that is meant."""
    path = ROOT / "tests" / "supply" / "liboctile.symbols"
    now = exported(library)
    strangers = [name for name in now if not re.match(r"octile_|_ZNK?6octile|_ZT[ISV]N6octile", name)]
    require(not strangers, f"nothing but Octile's own names is exported: {strangers}")
    if os.environ.get("OCTILE_WRITE_SYMBOLS"):
        path.write_text("\n".join(now) + "\n", encoding="utf-8")
        print(f"wrote {len(now)} symbols")
        return
    before = path.read_text(encoding="utf-8").split()
    gone = sorted(set(before) - set(now))
    new = sorted(set(now) - set(before))
    require(
        not gone and not new,
        "the public symbols are those of tests/supply/liboctile.symbols (OCTILE_WRITE_SYMBOLS=1 "
        f"writes it anew where a change is meant, which breaks programs where a symbol is gone)\ngone: {gone}\nnew: {new}",
    )
    print(f"{len(now)} public symbols")


def check_imports(library: str) -> None:
    imported = {line.split()[-1].split("@")[0] for line in output_of("nm", "-D", "--undefined-only", library).splitlines()}
    # A pair of sockets within the process' own family, for the tuner's workers, reaches no network.
    network = {
        "socket",
        "connect",
        "bind",
        "listen",
        "accept",
        "accept4",
        "getaddrinfo",
        "gethostbyname",
        "gethostbyname_r",
        "getnameinfo",
        "sendto",
        "sendmsg",
        "recvfrom",
        "if_nametoindex",
        "res_query",
        "inet_pton",
        "inet_addr",
    }
    require(not imported & network, f"nothing that reaches a network is imported: {sorted(imported & network)}")
    shell = {
        "system",
        "popen",
        "execvp",
        "execlp",
        "execvpe",
        "posix_spawnp",
        "tmpnam",
        "mktemp",
        "tempnam",
        "gets",
        "strcpy",
        "strcat",
        "sprintf",
        "vsprintf",
    }
    require(not imported & shell, f"no shell, no search of PATH, no unbounded copy is imported: {sorted(imported & shell)}")
    print(f"{len(imported)} imported symbols, none of a network")


def check_marks(archive: str) -> None:
    """Each object allows indirect jumps to marked places only, and a shadow stack: one that does not spoils the whole file."""
    objects = output_of("readelf", "-nW", archive).split("\nFile: ")[1:]
    unmarked = [text.splitlines()[0] for text in objects if re.search(r"x86 feature: IBT, SHSTK", text) is None]
    require(len(objects) > 100 and not unmarked, f"every one of {len(objects)} objects is marked: {unmarked}")
    print(f"{archive}: {len(objects)} objects, all marked")


def check_hardening(*files: str) -> None:
    for file in files:
        if file.endswith(".a"):
            if platform.machine() == "x86_64":
                check_marks(file)
            continue
        head = output_of("readelf", "-hW", file)
        segments = output_of("readelf", "-lW", file)
        dynamic = output_of("readelf", "-dW", file)
        imported = output_of("nm", "-D", "--undefined-only", file)
        require("DYN" in head, f"{file} can be loaded anywhere")
        stack = next(line for line in segments.splitlines() if "GNU_STACK" in line)
        require(" RWE" not in stack, f"{file}: the stack is not executable: {stack}")
        require(
            "GNU_RELRO" in segments and re.search(r"BIND_NOW|FLAGS.*NOW", dynamic) is not None,
            f"{file}: the table of functions is read-only after loading",
        )
        require("TEXTREL" not in dynamic, f"{file}: code is not written to")
        require("RPATH" not in dynamic or "$ORIGIN" in dynamic, f"{file}: no path of the build machine is searched")
        require("__stack_chk_fail" in imported, f"{file}: stacks are guarded")
        checked = sorted(set(re.findall(r"\b__(?!stack)\w+_chk\b", imported)))
        # A component or a module may write to nothing whose size is known.
        if Path(file).name.startswith(("liboctile.so", "octile")):
            require(bool(checked), f"{file}: calls of the C library check sizes (_FORTIFY_SOURCE)")
        if platform.machine() == "x86_64":
            require(
                re.search(r"x86 feature:.*SHSTK", output_of("readelf", "-nW", file)) is not None,
                f"{file}: a shadow stack may be used",
            )
        print(f"{file}: hardened, {len(checked)} kinds of calls with sizes")


CHECKS = {
    "dependencies": check_dependencies,
    "sbom": check_sbom,
    "dist": check_dist,
    "symbols": check_symbols,
    "imports": check_imports,
    "hardening": check_hardening,
}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in CHECKS:
        raise SystemExit(__doc__)
    CHECKS[sys.argv[1]](*sys.argv[2:])
