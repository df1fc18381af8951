"""Puts documents into an OpenAI-compatible server through OpenAI's own client, and prints the id of the
vector store that holds them.

    fill.py URL
"""

import sys
import time

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="not-asked-for", timeout=60)
# Seconds since 1970 at midnight (UTC) of 2026-11-30.
TODAY = 1_795_996_800
DOCUMENTS = {
    "leave.txt": ("Annual leave", "hr", "Every employee has thirty days of annual leave."),
    "sick-leave.txt": ("Sick leave", "hr", "Sick leave is paid for six weeks. Call in on the first day."),
    "travel.txt": ("Travel", "finance", "Travel is booked by the travel desk, with leave to spare."),
    "nianjia.txt": ("年假", "hr", "每位员工每年有三十天年假。"),
}

files, attributes = [], {}
for day, (name, (title, domain, text)) in enumerate(DOCUMENTS.items()):
    file = client.files.create(file=(name, text.encode()), purpose="assistants")
    files.append(file.id)
    attributes[file.id] = {
        "title": title,
        "domain": domain,
        "uri": f"https://wiki.example/{name}",
        "updated_at": TODAY + day * 86_400,
    }
store = client.vector_stores.create(name="Handbook")
for file in files:
    client.vector_stores.files.create(store.id, file_id=file, attributes=attributes[file])
for _ in range(120):
    known = list(client.vector_stores.files.list(store.id))
    if len(known) == len(files) and all(file.status != "in_progress" for file in known):
        break
    time.sleep(0.5)
failed = [file for file in known if file.status != "completed"]
assert not failed, failed
print(store.id)
