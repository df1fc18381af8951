"""What a million calls cost, from AWS's published prices.

    python3 infra/cost.py                     the table for the assumptions below
    python3 infra/cost.py --duration-ms 120 --memory-mb 1024
    python3 infra/cost.py --write             puts the table into docs/operations.md
    python3 infra/cost.py --check             fails when the document has another table

The prices are AWS's list prices of us-east-1 (N. Virginia) in US dollars, without taxes, free tier and
savings plans, entered by hand as known on PRICES_OF. No program fetches them: compare them with the pages
before you rely on a number (aws.amazon.com/lambda/pricing, /dynamodb/pricing/on-demand, /sqs/pricing,
/cloudwatch/pricing, /xray/pricing, /secrets-manager/pricing). Other regions cost more."""

import argparse
import pathlib
import sys

PRICES_OF = "2026-11-30"
DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "operations.md"
BEGINS, ENDS = "<!-- cost: begin -->", "<!-- cost: end -->"
MILLION = 1_000_000
HOURS_A_MONTH = 730

LAMBDA_REQUEST = 0.20 / MILLION
LAMBDA_GB_SECOND = {"arm64": 0.0000133334, "x86_64": 0.0000166667}
PROVISIONED_GB_SECOND = {"arm64": 0.0000033334, "x86_64": 0.0000041667}
DYNAMODB_WRITE_UNIT = 0.625 / MILLION
DYNAMODB_READ_UNIT = 0.125 / MILLION
DYNAMODB_GB_MONTH = 0.25
DYNAMODB_RECOVERY_GB_MONTH = 0.20
SQS_REQUEST = 0.40 / MILLION
LOG_GB = 0.50
ALARM_MONTH = 0.10
DASHBOARD_MONTH = 3.00
METRIC_MONTH = 0.30
XRAY_TRACE = 5.00 / MILLION
SECRET_MONTH = 0.40
# AWS X-Ray's default rule: the first request of a second, and this part of the others.
XRAY_SAMPLED = 0.05
KB = 1024
GB = 1024**3
# Sizes that DynamoDB and SQS count in.
WRITE_UNIT_BYTES, READ_UNIT_BYTES, SQS_REQUEST_BYTES = 1 * KB, 4 * KB, 64 * KB


def arguments():
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--architecture", choices=sorted(LAMBDA_GB_SECOND), default="arm64")
    add("--memory-mb", type=int, default=512, help="McpMemoryMb")
    add("--duration-ms", type=float, default=25, help="billed time of a call, engines included")
    add("--event-bytes", type=int, default=1500, help="an audit event as JSON")
    add("--log-bytes", type=int, default=1500, help="lines of a call in the log, metrics included")
    add("--catalog-bytes", type=int, default=8192, help="the catalogue that a call reads")
    add("--batch", type=float, default=5, help="events that one run of the audit function takes")
    add("--audit-duration-ms", type=float, default=20, help="billed time of such a run")
    add("--retention-days", type=int, default=400, help="AuditRetentionDays")
    add("--metrics", type=int, default=60, help="custom metrics: sets of dimension values")
    add("--alarms", type=int, default=14)
    add("--write", action="store_true", help="put the table into docs/operations.md")
    add("--check", action="store_true", help="fail when docs/operations.md has another table")
    return parser.parse_args()


def units(size_bytes, unit_bytes):
    return -(-size_bytes // unit_bytes)


def per_million(a):
    """(what, how it is counted, US dollars) for a million calls of a tool."""
    calls, runs = MILLION, MILLION / a.batch
    gb_second = LAMBDA_GB_SECOND[a.architecture]
    mcp = calls * a.duration_ms / 1000 * a.memory_mb / KB
    audit = runs * a.audit_duration_ms / 1000 * 256 / KB
    # A transaction costs twice: the event, and the head of its chain. Both indexes follow at the simple
    # price. Events of one key that come together share the head; here each one moves it alone.
    event_units = units(a.event_bytes, WRITE_UNIT_BYTES)
    writes = calls * (2 * (event_units + 1) + 2 * event_units)
    # The key and the catalogue are read consistently: a whole unit for each 4 KB.
    reads = calls * (1 + units(a.catalog_bytes, READ_UNIT_BYTES))
    messages = calls * units(a.event_bytes, SQS_REQUEST_BYTES) + 2 * runs
    logs = calls * a.log_bytes / GB
    traces = calls * XRAY_SAMPLED
    stored = calls * a.event_bytes * 3 / GB * a.retention_days / 30
    return [
        ("MCP function, requests", "1 a call", calls * LAMBDA_REQUEST),
        (
            "MCP function, time",
            f"{a.duration_ms:g} ms at {a.memory_mb} MB, {a.architecture}",
            mcp * gb_second,
        ),
        (
            "audit function",
            f"1 run for {a.batch:g} events, {a.audit_duration_ms:g} ms at 256 MB",
            runs * LAMBDA_REQUEST + audit * gb_second,
        ),
        ("count the call (state table)", "1 write unit", calls * DYNAMODB_WRITE_UNIT),
        (
            "read key and catalogue",
            f"{reads / calls:g} read units",
            reads * DYNAMODB_READ_UNIT,
        ),
        (
            "store the audit event",
            f"{writes / calls:g} write units (table, chain, two indexes), 1 read unit",
            writes * DYNAMODB_WRITE_UNIT + calls * DYNAMODB_READ_UNIT,
        ),
        ("queue", "1 send; receive and delete by batch", messages * SQS_REQUEST),
        ("log and metrics as log lines", f"{a.log_bytes} bytes", logs * LOG_GB),
        ("traces", f"{XRAY_SAMPLED:.0%} of the calls", traces * XRAY_TRACE),
        (
            "keep the events",
            f"{a.retention_days} days, with point-in-time recovery",
            stored * (DYNAMODB_GB_MONTH + DYNAMODB_RECOVERY_GB_MONTH),
        ),
    ]


def per_month(a):
    # The event source mapping asks with five pollers that each wait up to 20 seconds.
    polls = 5 * HOURS_A_MONTH * 3600 / 20
    return [
        ("queue, asked while it is empty", f"{polls:,.0f} requests", polls * SQS_REQUEST),
        ("alarms", f"{a.alarms}", a.alarms * ALARM_MONTH),
        ("dashboard", "1", DASHBOARD_MONTH),
        ("custom metrics", f"{a.metrics}, fewer when less is used", a.metrics * METRIC_MONTH),
        ("secret", "1", SECRET_MONTH),
    ]


def table(a):
    lines = [f"Prices of us-east-1 on {PRICES_OF}, US dollars.", ""]
    for title, rows in (("for a million calls", per_million(a)), ("a month", per_month(a))):
        lines += [f"| {title} | counted as | $ |", "|---|---|---:|"]
        lines += [f"| {what} | {how} | {dollars:.2f} |" for what, how, dollars in rows]
        lines += [f"| **together** | | **{sum(dollars for _, _, dollars in rows):.2f}** |", ""]
    gb_second = PROVISIONED_GB_SECOND[a.architecture]
    provisioned = HOURS_A_MONTH * 3600 * a.memory_mb / KB * gb_second
    lines.append(
        f"An instance of provisioned concurrency costs {provisioned:.2f} a month, whether it is "
        "called or not."
    )
    return "\n".join(lines)


def main():
    a = arguments()
    text = table(a)
    if not (a.write or a.check):
        print(text)
        return 0
    document = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = document.partition(BEGINS)
    inside, _, after = rest.partition(ENDS)
    if a.check:
        agrees = inside.strip() == text
        print("cost: docs/operations.md", "agrees" if agrees else "DIFFERS: infra/cost.py --write")
        return 0 if agrees else 1
    DOCUMENT.write_text(f"{before}{BEGINS}\n{text}\n{ENDS}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
