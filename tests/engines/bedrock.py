"""A knowledge base of Bedrock in MiniStack, and what raglan makes of it.

    bedrock.py prepare AWS_URL          makes it and prints its identifier
    bedrock.py check MCP_URL KEY        asks raglan about the knowledge base `staff`
"""

import json
import sys
import urllib.request

DOCUMENTS = {
    "leave": ("Every employee has thirty days of leave a year.", {"domain": "hr", "year": 2026}),
    "travel": ("The travel desk books travel for every employee.", {"domain": "travel", "year": 2024}),
}


def prepare(endpoint):
    import boto3

    def client(service):
        return boto3.client(
            service,
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    s3, agent = client("s3"), client("bedrock-agent")
    s3.create_bucket(Bucket="handbook")
    for name, (text, attributes) in DOCUMENTS.items():
        key = f"hr/{name}.md"
        s3.put_object(Bucket="handbook", Key=key, Body=text.encode())
        sidecar = json.dumps({"metadataAttributes": attributes}).encode()
        s3.put_object(Bucket="handbook", Key=f"{key}.metadata.json", Body=sidecar)
    model = "arn:aws:bedrock:us-east-1::foundation-model/amazon.titan-embed-text-v2:0"
    made = agent.create_knowledge_base(
        name="Staff handbook",
        roleArn="arn:aws:iam::000000000000:role/kb",
        knowledgeBaseConfiguration={
            "type": "VECTOR",
            "vectorKnowledgeBaseConfiguration": {"embeddingModelArn": model},
        },
    )
    knowledge_base = made["knowledgeBase"]["knowledgeBaseId"]
    source = agent.create_data_source(
        knowledgeBaseId=knowledge_base,
        name="Handbook bucket",
        dataSourceConfiguration={
            "type": "S3",
            "s3Configuration": {"bucketArn": "arn:aws:s3:::handbook"},
        },
    )["dataSource"]["dataSourceId"]
    agent.start_ingestion_job(knowledgeBaseId=knowledge_base, dataSourceId=source)
    print(knowledge_base)


class Raglan:
    def __init__(self, url, key):
        self.url, self.key = url, key

    def call(self, tool, **arguments):
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": tool, "arguments": {"kb_id": "staff", **arguments}},
        }
        request = urllib.request.Request(
            self.url,
            json.dumps(message).encode(),
            {
                "Authorization": f"Bearer {self.key}",
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": "2025-06-18",
            },
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
        result = answer["result"]
        assert not result.get("isError"), f"{tool}: {result}"
        return result["structuredContent"]

    def found(self, **arguments):
        items = self.call("retrieve", query="employee", **arguments)["items"]
        return sorted(item["metadata"]["filename"] for item in items)


def check(url, key):
    raglan = Raglan(url, key)
    leave, travel = "hr/leave.md", "hr/travel.md"
    for filters, expected in [
        ({}, [leave, travel]),
        ({"domain": "hr"}, [leave]),
        ({"domain": ["hr", "travel"]}, [leave, travel]),
        ({"metadata": {"domain": {"ne": "hr"}}}, [travel]),
        ({"metadata": {"year": {"gt": 2024}}}, [leave]),
        ({"metadata": {"year": {"gte": 2024, "lt": 2026}}}, [travel]),
        ({"domain": "hr", "metadata": {"year": 2024}}, []),
    ]:
        found = raglan.found(filters=filters)
        assert found == expected, f"{filters}: {found}"
        print(f"retrieve {json.dumps(filters)}: {len(found)}")

    told = raglan.call("get_knowledge_base")
    print("get_knowledge_base:", json.dumps(told["statistics"]))
    assert told["statistics"]["sources"] == ["Handbook bucket"], told
    assert told["statistics"]["embedding_model"] == "amazon.titan-embed-text-v2:0", told

    # MiniStack's model cites nothing, so its text is not believed.
    answer = raglan.call("ask", question="How many days of leave does every employee have?")
    print("ask:", json.dumps({name: answer.get(name) for name in ("answer", "engine", "warnings")}))
    assert answer["grounded"] and "thirty days" in answer["answer"], answer
    assert answer["engine"] == "extractive" and "cited no passage" in answer["warnings"][0], answer


if __name__ == "__main__":
    {"prepare": prepare, "check": check}[sys.argv[1]](*sys.argv[2:])
