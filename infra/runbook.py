"""Fails when an alarm of template.yaml has no section in docs/operations.md, or a section no alarm."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

template = (ROOT / "template.yaml").read_text(encoding="utf-8")
runbook = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
alarms = set(re.findall(r"^  (\w+):\n    Type: AWS::CloudWatch::Alarm$", template, re.MULTILINE))
sections = set(re.findall(r"^### (\w+Alarm)$", runbook, re.MULTILINE))
on_dashboard = set(re.findall(r"\$\{(\w+Alarm)\.Arn\}", template))
for missing in sorted(alarms - sections):
    print(f"docs/operations.md has no section {missing}")
for gone in sorted(sections - alarms):
    print(f"docs/operations.md has a section {gone}, and template.yaml no such alarm")
for missing in sorted(alarms ^ on_dashboard):
    print(f"{missing} is not both an alarm and on the dashboard")
print(f"{len(alarms)} alarms, {len(alarms & sections)} sections")
sys.exit(0 if alarms and alarms == sections == on_dashboard else 1)
