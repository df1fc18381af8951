"""Counts the instructions of the program request-instructions and compares them with the record. See `gate`."""

import argparse
import platform
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CALLS = ["initialize", "tools_list", "retrieve", "refusal", "bad_key"]
COUNTED_CALLS = 20
TOLERANCE = 0.05
# Below this two counts of one program differ by what the hash tables' random seeds decide.
NOISE = 0.01
AGAIN = "tests/performance/gate --record"


def instructions(program, folder, *call):
    """How many instructions one run executes, the start included."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    done = subprocess.run(
        [*command, program, "run", folder, *call], capture_output=True, text=True, check=False
    )
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    if done.returncode or not found:
        sys.exit(f"gate: {program} {call} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return int(found[1].replace(",", ""))


def count(program, folder):
    """Instructions of one call, by its name."""
    subprocess.run([program, "prepare", folder], check=True)
    runs = [(), *((call, str(COUNTED_CALLS)) for call in CALLS)]
    with ThreadPoolExecutor(2) as workers:
        start, *whole = workers.map(lambda run: instructions(program, folder, *run), runs)
    return {call: (total - start) // COUNTED_CALLS for call, total in zip(CALLS, whole)}


def built_with():
    version = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True)
    return {
        "rustc": version.stdout.split()[1],
        "architecture": platform.machine(),
        # Libraries choose their code by these when they run.
        "extensions": extensions(),
    }


def extensions():
    """Which of the processor's extensions that matter here there are, in one text."""
    try:
        words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        words = set()
    return " ".join(name for name in ("sse4_2", "avx", "avx2", "avx512f", "sha_ni") if name in words)


def write(path, counted):
    lines = ["# Instructions of one call, in the dev profile. Written by tests/performance/gate --record."]
    lines += [f'{name} = "{value}"' for name, value in built_with().items()]
    lines += ["", "[instructions]", *(f"{call} = {number}" for call, number in counted.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--record-file", type=Path, required=True)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    counted = count(arguments.program, arguments.folder)
    if arguments.record:
        write(arguments.record_file, counted)
        print(arguments.record_file.read_text(encoding="utf-8"), end="")
        return 0
    recorded = tomllib.loads(arguments.record_file.read_text(encoding="utf-8"))
    worse = []
    for call, number in counted.items():
        before = recorded["instructions"].get(call)
        change = number / before - 1 if before else 0.0
        print(f"{call:<12} {number:>12,}   recorded {before or 0:>12,}   {change:+7.1%}")
        if before is None or change > TOLERANCE:
            worse.append(call)
        elif change < -TOLERANCE - NOISE:
            print(f"             less than recorded: `{AGAIN}` keeps it so")
    same = {name: recorded.get(name) for name in built_with()} == built_with()
    if not same:
        before = f"{recorded.get('rustc')} on {recorded.get('architecture')} ({recorded.get('extensions')})"
        print(f"gate: NOT COMPARED, the record is of rustc {before}; to make one for here: {AGAIN}")
        return 0
    if worse:
        print(f"gate: FAILED for {', '.join(worse)}. If that is what the change is worth: {AGAIN}")
        return 1
    print("gate: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
