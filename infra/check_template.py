"""Applies the SAM transform to template.yaml and checks what must hold in the result.

Needs aws-sam-translator and cfn-lint (for its reader of CloudFormation's short tags). Prints each
broken rule on a line of its own and exits with 1 when there is one.
"""

import os
import pathlib
import sys

import cfnlint.decode
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator

ROOT = pathlib.Path(__file__).resolve().parent.parent

LOG_ACTIONS = {"logs:CreateLogStream", "logs:PutLogEvents"}
ALLOWED_ACTIONS = {
    ("McpRole", "KeysTable"): {"dynamodb:GetItem"},
    ("McpRole", "CatalogTable"): {"dynamodb:GetItem", "dynamodb:Query", "dynamodb:BatchGetItem"},
    ("McpRole", "StateTable"): {
        "dynamodb:UpdateItem",
        "dynamodb:PutItem",
        "dynamodb:DeleteItem",
    },
    ("McpRole", "AuditQueue"): {"sqs:SendMessage"},
    ("McpRole", "McpLogGroup"): LOG_ACTIONS,
    ("AuditRole", "AuditTable"): {"dynamodb:PutItem"},
    ("AuditRole", "AuditQueue"): {
        "sqs:ReceiveMessage",
        "sqs:DeleteMessage",
        "sqs:GetQueueAttributes",
    },
    ("AuditRole", "AuditLogGroup"): LOG_ACTIONS,
}
EXPIRING_TABLES = {"CatalogTable", "StateTable", "AuditTable"}
PROTECTED_TABLES = {"KeysTable", "AuditTable"}
LEAST_RECEIVE_COUNT = 5
VISIBILITY_PER_TIMEOUT = 6


def translated():
    """The template's resources after the SAM transform."""
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    template, problems = cfnlint.decode.decode(str(ROOT / "template.yaml"))
    if problems:
        sys.exit("\n".join(str(problem) for problem in problems))
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            # The transform wants code that was uploaded already.
            resource["Properties"]["CodeUri"] = {"Bucket": "checked", "Key": "code.zip"}
    translator = Translator(managed_policy_map={}, sam_parser=Parser())
    return translator.translate(template, parameter_values={})["Resources"]


def as_list(value):
    return value if isinstance(value, list) else [value]


def permitted_actions(resources):
    """Actions by role and by the resource that they are allowed on."""
    actions = {}
    for name, resource in resources.items():
        if resource["Type"] != "AWS::IAM::Role":
            continue
        for policy in resource["Properties"].get("Policies", []):
            for statement in policy["PolicyDocument"]["Statement"]:
                for target in as_list(statement["Resource"]):
                    logical_id = target["Fn::GetAtt"][0] if isinstance(target, dict) else target
                    granted = actions.setdefault((name, logical_id), set())
                    granted.update(as_list(statement["Action"]))
        if resource["Properties"].get("ManagedPolicyArns"):
            actions[(name, "managed policies")] = set(resource["Properties"]["ManagedPolicyArns"])
    return actions


def problems(resources):
    """One sentence for each rule that is broken."""
    def of_type(kind):
        return {
            name: resource["Properties"]
            for name, resource in resources.items()
            if resource["Type"] == kind
        }

    granted = permitted_actions(resources)
    for place in granted.keys() | ALLOWED_ACTIONS.keys():
        if granted.get(place) != ALLOWED_ACTIONS.get(place):
            yield f"{place}: {granted.get(place)} is granted, {ALLOWED_ACTIONS.get(place)} expected"

    callers = {
        properties["Action"]
        for properties in of_type("AWS::Lambda::Permission").values()
        if properties.get("Principal") == "*"
    }
    if callers != {"lambda:InvokeFunctionUrl", "lambda:InvokeFunction"}:
        yield f"the function URL is open for {callers}; both permissions are needed"
    for name, url in of_type("AWS::Lambda::Url").items():
        if "Cors" in url:
            yield f"{name}: the function decides about CORS, not its URL"

    for name, table in of_type("AWS::DynamoDB::Table").items():
        if name in EXPIRING_TABLES and not table.get("TimeToLiveSpecification", {}).get("Enabled"):
            yield f"{name}: items do not expire"
        if name in PROTECTED_TABLES and "DeletionProtectionEnabled" not in table:
            yield f"{name}: can be deleted by mistake"
        if not table.get("PointInTimeRecoverySpecification", {}).get("PointInTimeRecoveryEnabled"):
            yield f"{name}: has no point-in-time recovery"

    queue = of_type("AWS::SQS::Queue")["AuditQueue"]
    timeout = of_type("AWS::Lambda::Function")["AuditFunction"]["Timeout"]
    if queue["VisibilityTimeout"] < VISIBILITY_PER_TIMEOUT * timeout:
        yield f"AuditQueue: messages come again while the function may still work ({timeout} s)"
    if queue["RedrivePolicy"]["maxReceiveCount"] < LEAST_RECEIVE_COUNT:
        yield "AuditQueue: gives up on events too early"
    for name, mapping in of_type("AWS::Lambda::EventSourceMapping").items():
        if mapping.get("FunctionResponseTypes") != ["ReportBatchItemFailures"]:
            yield f"{name}: one failed event would bring its whole batch again"


if __name__ == "__main__":
    broken = list(problems(translated()))
    print("\n".join(broken) or "template.yaml: all rules hold")
    sys.exit(1 if broken else 0)
