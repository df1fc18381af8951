"""Reads a server of the backend contract with OpenAI's own client, and checks that every object is what
that client's types say: whoever keeps our contract keeps the interface that it is a subset of.

    official_client.py URL
"""

import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="not-asked-for", max_retries=0)


def whole(thing):
    """The client takes what it gets; its types are checked here."""
    type(thing).model_validate(thing.model_dump(mode="json", exclude_unset=True))
    return thing


stores = [whole(store) for store in client.vector_stores.list(limit=1)]
store = whole(client.vector_stores.retrieve(stores[0].id))
assert store.file_counts.completed == 5, store

files = [whole(file) for file in client.vector_stores.files.list(store.id, limit=2, order="asc")]
assert len({file.id for file in files}) == 5, "three pages, each file once"
file = whole(client.vector_stores.files.retrieve("leave", vector_store_id=store.id))
assert file.attributes["domain"] == "hr", file
text = [whole(part) for part in client.vector_stores.files.content("leave", vector_store_id=store.id)]
assert "thirty days" in text[0].text, text


def search(query, **options):
    found = client.vector_stores.search(store.id, query=query, **options)
    return [whole(result) for result in found]


assert search("annual leave")[0].file_id == "leave"
assert search("年假有多少天")[0].file_id == "nianjia"
assert len(search("leave", max_num_results=1)) == 1
hr = {"type": "eq", "key": "domain", "value": "hr"}
late = {"type": "gt", "key": "updated_at", "value": files[0].attributes["updated_at"]}
assert {hit.file_id for hit in search("leave", filters=hr)} == {"leave", "sick-leave"}
both = {"type": "and", "filters": [hr, late]}
assert [hit.file_id for hit in search("leave", filters=both)] == ["sick-leave"]

for refused, status in [
    (lambda: search("leave", filters={"type": "like", "key": "domain", "value": "h"}), 400),
    (lambda: client.vector_stores.retrieve("vs_other"), 404),
]:
    try:
        refused()
    except openai.APIStatusError as error:
        assert error.status_code == status, error
    else:
        raise AssertionError(f"expected {status}")

print(f"official client {openai.__version__}: every object is what its types say")
