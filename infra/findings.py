"""Compares what checkov finds in the templates with accepted_findings.txt.

    python3 findings.py CHECKOV TEMPLATE...

Prints each finding that nobody has accepted, and each accepted one that is not found any more."""

import json
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
ACCEPTED_FILE = FOLDER / "accepted_findings.txt"


def accepted():
    """(file, resource, check) and the reason."""
    lines = ACCEPTED_FILE.read_text(encoding="utf-8").splitlines()
    parts = [line.split(" ", 3) for line in lines if line and not line.startswith("#")]
    return {(file, resource, check): reason for file, resource, check, reason in parts}


def scan(checkov, templates):
    """The findings in the templates, and the number of checks that they passed."""
    command = [checkov, "--framework", "cloudformation", "-o", "json", "--quiet", "--skip-download"]
    for template in templates:
        command += ["-f", template]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    if "summary" not in report or report["summary"]["parsing_errors"]:
        sys.exit(f"checkov could not read them: {done.stdout[-500:]} {done.stderr[-500:]}")
    failed = report["results"]["failed_checks"]
    found = {(file_of(x, templates), x["resource"], x["check_id"]): x["check_name"] for x in failed}
    return found, report["summary"]["passed"]


def file_of(finding, templates):
    """The template as it was named; checkov begins its paths with a slash."""
    path = finding["file_path"]
    named = [template for template in templates if f"/{path}".endswith(f"/{template}")]
    return named[0] if named else path


def main(checkov, templates):
    found, passed = scan(checkov, templates)
    known = accepted()
    for (file, resource, check), name in sorted(found.items()):
        reason = known.get((file, resource, check))
        print(f"  {check} {file} {resource.rpartition('.')[2]}: {name}")
        print(f"    accepted: {reason}" if reason else "    NOT ACCEPTED")
    gone = sorted(known.keys() - found.keys())
    for file, resource, check in gone:
        print(f"  {check} {file} {resource}: accepted, but not found any more")
    new = found.keys() - known.keys()
    print(f"checkov: {passed} checks passed, {len(found)} findings, {len(new)} of them not accepted")
    return 1 if new or gone else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
