"""Applies the SAM transform to template.yaml and checks what must hold in the result.

The rights in its policies are compared with the calls in the sources (rights.py). Needs
aws-sam-translator and cfn-lint (for its reader of CloudFormation's short tags). Prints each
broken rule on a line of its own and exits with 1 when there is one.
"""

import os
import pathlib
import sys

import cfnlint.decode
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator

import rights

ROOT = pathlib.Path(__file__).resolve().parent.parent

EXPIRING_TABLES = {"CatalogTable", "StateTable", "AuditTable"}
PROTECTED_TABLES = {"KeysTable", "AuditTable"}
LEAST_RECEIVE_COUNT = 5
PUBLISHED_INDEXES = {
    "arn:${AWS::Partition}:s3:::${Folder}*": "PublishedIndexes",
    "arn:${AWS::Partition}:s3:::${Bucket}": "BucketOfPublishedIndexes",
}
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


def statements(resource):
    """The statements of a role or a managed policy, those under a condition included."""
    properties = resource["Properties"]
    documents = [policy["PolicyDocument"] for policy in properties.get("Policies", [])]
    documents += [properties["PolicyDocument"]] if "PolicyDocument" in properties else []
    for document in documents:
        for statement in document["Statement"]:
            yield statement["Fn::If"][1] if "Fn::If" in statement else statement


def target_name(target):
    """The logical identifier that a statement's resource is about."""
    if isinstance(target, str):
        return target
    if "Fn::Sub" in target:
        pattern = target["Fn::Sub"]
        if isinstance(pattern, list):
            return PUBLISHED_INDEXES[pattern[0]]
        alarms = ":cloudwatch:" in pattern and ":alarm:${AWS::StackName}-*" in pattern
        return "Alarms" if alarms else pattern.partition(".Arn}")[0].removeprefix("${")
    name = target["Fn::GetAtt"][0] if "Fn::GetAtt" in target else target["Ref"]
    return "Stack" if name == "AWS::StackId" else name


def permitted_actions(resources):
    """Actions by role (or managed policy) and by the resource that they are allowed on."""
    actions = {}
    for name, resource in resources.items():
        if resource["Type"] not in ("AWS::IAM::Role", "AWS::IAM::ManagedPolicy"):
            continue
        for statement in statements(resource):
            for target in as_list(statement["Resource"]):
                granted = actions.setdefault((name, target_name(target)), set())
                granted.update(as_list(statement["Action"]))
        if resource["Properties"].get("ManagedPolicyArns"):
            actions[(name, "managed policies")] = set(resource["Properties"]["ManagedPolicyArns"])
    return actions


def problems_of_rights(resources):
    """What a policy grants and the code does not use, or the other way round; and any wildcard."""
    expected, unaccounted = rights.used()
    yield from unaccounted
    granted = permitted_actions(resources)
    for (who, target), actions in granted.items():
        if any("*" in action for action in actions):
            yield f"{who}: {actions} has a wildcard"
        if "*" in str(target) and not actions <= rights.ON_EVERYTHING:
            yield f"{who}: {actions - rights.ON_EVERYTHING} is granted on {target}"
    granted = {place: actions for place, actions in granted.items() if place[1] != "*"}
    for who, target in sorted(granted.keys() | expected.keys()):
        has, uses = granted.get((who, target), set()), expected.get((who, target), set())
        if has - uses:
            yield f"{who} may {sorted(has - uses)} on {target}, and no code does"
        if uses - has:
            yield f"{who} may not {sorted(uses - has)} on {target}, and code does"


def problems(resources):
    """One sentence for each rule that is broken."""
    def of_type(kind):
        return {
            name: resource["Properties"]
            for name, resource in resources.items()
            if resource["Type"] == kind
        }

    yield from problems_of_rights(resources)
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

    for name, function in of_type("AWS::Lambda::Function").items():
        if function.get("TracingConfig") != {"Mode": "Active"}:
            yield f"{name}: is not traced"

    for name, table in of_type("AWS::DynamoDB::Table").items():
        if name in EXPIRING_TABLES and not table.get("TimeToLiveSpecification", {}).get("Enabled"):
            yield f"{name}: items do not expire"
        if name in PROTECTED_TABLES and "DeletionProtectionEnabled" not in table:
            yield f"{name}: can be deleted by mistake"
        if name in PROTECTED_TABLES and resources[name].get("DeletionPolicy") != "Retain":
            yield f"{name}: goes with the stack"
        if not table.get("PointInTimeRecoverySpecification", {}).get("PointInTimeRecoveryEnabled"):
            yield f"{name}: has no point-in-time recovery"

    roots = of_type("AWS::S3::Bucket")["AuditRootsBucket"]
    lock = roots.get("ObjectLockConfiguration", {}).get("Rule", {}).get("DefaultRetention")
    if not (roots.get("ObjectLockEnabled") and lock):
        yield "AuditRootsBucket: roots can be deleted"

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
