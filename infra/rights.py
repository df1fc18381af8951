"""Which rights on AWS the code uses, read from its sources, so that the policies of template.yaml can be
compared with it: every call of AWS belongs to somebody, and nobody has a right without a call. A call is a method
of the SDK's clients (`.get_item()`) or an input that our own client sends (`GetItemInput::builder()`)."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent

MCP, AUDIT, ADMINISTRATOR = "McpRole", "AuditRole", "AdministratorPolicy"

# The SDK's method and the rights that it needs. A transaction needs the right of each of its parts.
OPERATIONS = {
    "get_item": {"dynamodb:GetItem"},
    "put_item": {"dynamodb:PutItem"},
    "update_item": {"dynamodb:UpdateItem"},
    "delete_item": {"dynamodb:DeleteItem"},
    "query": {"dynamodb:Query"},
    "scan": {"dynamodb:Scan"},
    "batch_get_item": {"dynamodb:BatchGetItem"},
    "batch_write_item": {"dynamodb:PutItem", "dynamodb:DeleteItem"},
    "transact_write_items": set(),
    "describe_table": {"dynamodb:DescribeTable"},
    "send_message": {"sqs:SendMessage"},
    "send_message_batch": {"sqs:SendMessage"},
    "get_queue_attributes": {"sqs:GetQueueAttributes"},
    "describe_stacks": {"cloudformation:DescribeStacks"},
    "describe_alarms": {"cloudwatch:DescribeAlarms"},
    # Everybody may ask who they are.
    "get_caller_identity": set(),
    "get_object": {"s3:GetObject"},
    "put_object": {"s3:PutObject"},
    "head_object": {"s3:GetObject"},
    "delete_object": {"s3:DeleteObject"},
    "list_objects_v2": {"s3:ListBucket"},
    "list_object_versions": {"s3:ListBucketVersions"},
    "get_secret_value": {"secretsmanager:GetSecretValue"},
    "get_parameter": {"ssm:GetParameter"},
    "retrieve": {"bedrock:Retrieve"},
    "get_knowledge_base": {"bedrock:GetKnowledgeBase"},
    "list_data_sources": {"bedrock:ListDataSources"},
    "list_knowledge_base_documents": {"bedrock:ListKnowledgeBaseDocuments"},
    "get_ingestion_job": {"bedrock:GetIngestionJob"},
    "list_ingestion_jobs": {"bedrock:ListIngestionJobs"},
    "converse": {"bedrock:InvokeModel"},
    # Has no resource; the rights to search and to use the model are needed as well.
    "retrieve_and_generate": set(),
    # Has no resource: operators who look for knowledge bases need it, and no function does.
    "list_knowledge_bases": set(),
}
# `GetItemInput` and its like, by the method of the SDK's client.
INPUTS = {f"{name.title().replace('_', '')}Input": name for name in OPERATIONS}
# What the parts of a transaction are, as the SDK's types are written in the sources.
TRANSACTION_PARTS = {
    "Put::builder()": "dynamodb:PutItem",
    "Delete::builder()": "dynamodb:DeleteItem",
    "Update::builder()": "dynamodb:UpdateItem",
    "ConditionCheck::builder()": "dynamodb:ConditionCheckItem",
}

# The file, the resource that it talks to, and who calls each of its functions.
USERS = {
    "shared/store/src/keys.rs": (
        "KeysTable",
        {
            "find": [MCP, ADMINISTRATOR],
            "read": [ADMINISTRATOR],
            "warm": [MCP],
            "list": [ADMINISTRATOR],
            "find_by_id": [ADMINISTRATOR],
            "write": [ADMINISTRATOR],
            "put_replacement": [ADMINISTRATOR],
            "rotate": [ADMINISTRATOR],
        },
    ),
    "shared/store/src/catalog/mod.rs": (
        "CatalogTable",
        {"get_item": [MCP, ADMINISTRATOR], "query": [MCP, ADMINISTRATOR]},
    ),
    "shared/store/src/catalog/batch.rs": ("CatalogTable", {"batch_get": [MCP, ADMINISTRATOR]}),
    "shared/store/src/catalog/task.rs": ("CatalogTable", {"put_task": [ADMINISTRATOR]}),
    "shared/store/src/catalog/write.rs": ("CatalogTable", {"transact": [ADMINISTRATOR]}),
    "shared/store/src/idempotency.rs": (
        "StateTable",
        {"claim": [MCP], "keep": [MCP], "free": [MCP]},
    ),
    "shared/store/src/sessions.rs": ("StateTable", {"append": [MCP], "latest": [MCP]}),
    # The credentials of engines and of the model that writes answers; `raglan kb discover` reads them
    # with whatever rights its operator has.
    "shared/engines/src/credentials.rs": (None, {"secret": [MCP], "parameter": [MCP]}),
    "shared/store/src/leases.rs": ("StateTable", {"try_take": [MCP], "give_back": [MCP]}),
    "shared/store/src/limits.rs": ("StateTable", {"write": [MCP]}),
    "shared/store/src/usage.rs": ("StateTable", {"of": [ADMINISTRATOR]}),
    "shared/store/src/audit_queue.rs": (
        "AuditQueue",
        {"send_json": [MCP, ADMINISTRATOR], "warm": [MCP]},
    ),
    "shared/store/src/audit_table.rs": (
        "AuditTable",
        # The pages that a query returns are those of query.
        {
            "head": [AUDIT, ADMINISTRATOR],
            "query": [AUDIT, ADMINISTRATOR],
            "mark_closed": [AUDIT],
        },
    ),
    "shared/store/src/audit_append.rs": ("AuditTable", {"transact": [AUDIT]}),
    "shared/store/src/dead_letters.rs": ("AuditDeadLetterQueue", {"keep": [AUDIT]}),
    "functions/audit/src/archive/bucket.rs": (
        "AuditRootsBucket",
        {
            "first_versions": [AUDIT, ADMINISTRATOR],
            "read": [AUDIT, ADMINISTRATOR],
            "keep": [AUDIT],
        },
    ),
    "shared/bedrock/src/backend.rs": (
        "BedrockKnowledgeBaseArns",
        {"get_knowledge_base": [MCP]},
    ),
    "shared/bedrock/src/answer.rs": (None, {"generate": [MCP]}),
    "shared/bedrock/src/retrieval.rs": ("BedrockKnowledgeBaseArns", {"pages": [MCP]}),
    "shared/bedrock/src/listing.rs": (
        "BedrockKnowledgeBaseArns",
        {
            "knowledge_base_page": [ADMINISTRATOR],
            "sources": [MCP],
            "documents_of": [MCP],
            "newest_job": [MCP],
            "ingestion_job": [MCP],
        },
    ),
    "shared/bedrock/src/converse.rs": ("BedrockModelArns", {"converse": [MCP]}),
    "shared/aws/src/s3.rs": ("PublishedIndexes", {"open": [MCP, ADMINISTRATOR]}),
    "shared/index-store/src/objects.rs": (
        "PublishedIndexes",
        {
            "upload": [ADMINISTRATOR],
            "replace": [ADMINISTRATOR],
            "list": [ADMINISTRATOR],
            "delete": [ADMINISTRATOR],
        },
    ),
    "cli/src/doctor/inside.rs": (
        None,
        {
            "describe_table": [ADMINISTRATOR],
            "attributes": [ADMINISTRATOR],
            "alarms": [ADMINISTRATOR],
        },
    ),
    "cli/src/target.rs": ("Stack", {"of_stack": [ADMINISTRATOR], "operator": [ADMINISTRATOR]}),
}

# The functions that talk to other resources than the rest of their file.
RESOURCES = {
    ("cli/src/doctor/inside.rs", "describe_table"): [
        "KeysTable",
        "CatalogTable",
        "StateTable",
        "AuditTable",
    ],
    ("cli/src/doctor/inside.rs", "attributes"): ["AuditQueue", "AuditDeadLetterQueue"],
    ("cli/src/doctor/inside.rs", "alarms"): ["Alarms"],
    ("shared/engines/src/credentials.rs", "secret"): ["SecretArns"],
    ("shared/engines/src/credentials.rs", "parameter"): ["ParameterArns"],
    # The right to list is one on the bucket, not on what is in it.
    ("shared/index-store/src/objects.rs", "list"): ["BucketOfPublishedIndexes"],
}

# The functions that name the version of the object that they read, which is a right of its own.
OF_A_VERSION = {("functions/audit/src/archive/bucket.rs", "read"): {"s3:GetObjectVersion"}}

# Rights that Lambda uses in the function's name, or that go with a service.
OF_THE_PLATFORM = {
    (MCP, "McpLogGroup"): {"logs:CreateLogStream", "logs:PutLogEvents"},
    (AUDIT, "AuditLogGroup"): {"logs:CreateLogStream", "logs:PutLogEvents"},
    # Bedrock applies the guardrail of a search or an answer in the name of who asked.
    (MCP, "BedrockGuardrailArns"): {"bedrock:ApplyGuardrail"},
    # The event source mapping takes messages with the function's role.
    (AUDIT, "AuditQueue"): {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"},
    **{
        (who, "KmsKeyArn"): {"kms:Decrypt", "kms:GenerateDataKey"}
        for who in (MCP, AUDIT, ADMINISTRATOR)
    },
}
# The only rights on everything: these services know no resource that they could be bound to.
ON_EVERYTHING = {
    "xray:PutTraceSegments",
    "xray:PutTelemetryRecords",
    "bedrock:RetrieveAndGenerate",
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
}


def product_sources():
    """The sources of what is deployed or run by operators: no tests, no local stand-ins."""
    for folder in ("functions", "shared", "cli/src"):
        for path in sorted((ROOT / folder).rglob("*.rs")):
            name = path.relative_to(ROOT).as_posix()
            # `raglan dev` makes tables and takes messages, in emulators only.
            is_local = name.startswith("cli/src/local/") or "/testing" in name
            # The client itself: it sends what others ask for.
            is_client = name in ("shared/aws/src/service.rs", "shared/aws/src/signing.rs")
            if "/src/" in name and not is_local and not is_client and "/tests" not in name:
                yield name, path.read_text(encoding="utf-8")


def calls(text):
    """(function, operation) for each call of the SDK, and the number of requests that are sent."""
    text = text.split("\n#[cfg(test)]\nmod ")[0]
    found, function = [], None
    methods, inputs = "|".join(OPERATIONS), "|".join(INPUTS)
    pattern = re.compile(rf"\bfn (\w+)|\.({methods})\(\)|\b({inputs})::builder\(\)")
    for match in pattern.finditer(text):
        if match[1]:
            function = match[1]
        else:
            found.append((function, match[2] or INPUTS[match[3]]))
    sent = len(re.findall(r"\.send(?:_with_reader)?\(", text)) if "aws_sdk_" in text else len(found)
    return found, sent


def used():
    """Rights by (who, resource), and a sentence for everything that cannot be accounted for."""
    rights, problems, seen = {}, [], set()
    for name, text in product_sources():
        found, sent = calls(text)
        if len(found) < sent:
            problems.append(f"{name}: {sent} requests, but only {found} are known to rights.py")
        resource, functions = USERS.get(name, (None, {}))
        for function, operation in found:
            seen.add((name, function))
            if function not in functions:
                problems.append(f"{name}: {function} calls {operation}; rights.py does not say who")
            actions = OF_A_VERSION.get((name, function), set(OPERATIONS[operation]))
            if operation == "transact_write_items":
                actions = {right for part, right in TRANSACTION_PARTS.items() if part in text}
            for who in functions.get(function, []):
                for target in RESOURCES.get((name, function), [resource]):
                    rights.setdefault((who, target), set()).update(actions)
    for name, (_, functions) in USERS.items():
        for function in functions:
            if (name, function) not in seen:
                problems.append(f"{name}: {function} calls AWS no more; rights.py says it does")
    rights = {place: actions for place, actions in rights.items() if actions}
    for place, actions in OF_THE_PLATFORM.items():
        rights.setdefault(place, set()).update(actions)
    return rights, problems
