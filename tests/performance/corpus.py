"""Writes a folder of Markdown documents that `raglan index` splits into about as many passages as are asked for.

    corpus.py FOLDER PASSAGES

The documents are the sentences of examples/knowledge in a random order (fixed seed), with numbers of their
own, so words are as frequent as in real text, in English and Chinese, and no two passages are the same.
"""

import random
import re
import sys
from pathlib import Path

SAMPLE = Path(__file__).resolve().parents[2] / "examples" / "knowledge"
SEED = 20261130
PASSAGES_PER_DOCUMENT = 8
# A little below the size that raglan aims at, so that a section becomes one passage.
SECTION_BYTES = 1050


def sentences():
    found = []
    # The poisoned documents are there to be found; most documents are harmless.
    for path in sorted(path for path in SAMPLE.rglob("*.md") if "poisoned" not in path.name):
        for line in path.read_text(encoding="utf-8").splitlines():
            if len(line) > 40 and not line.startswith(("#", "|", "```", "---")):
                found += re.split(r"(?<=[.!?])\s+|(?<=[。！？])", line.strip("-* "))
    return [sentence for sentence in found if len(sentence) > 20]


def section(randomness, pool, number):
    text, size = [], 0
    while size < SECTION_BYTES:
        sentence = randomness.choice(pool)
        text.append(sentence)
        size += len(sentence.encode())
        if randomness.random() < 0.3:
            text.append(f"Reference {number}-{randomness.randrange(10_000)}.")
    return " ".join(text)


def write(folder, passages):
    randomness, pool = random.Random(SEED), sentences()
    folder.mkdir(parents=True, exist_ok=True)
    for document in range(-(-passages // PASSAGES_PER_DOCUMENT)):
        parts = [f"# Document {document}: {' '.join(randomness.choice(pool).split()[:6])}"]
        for number in range(PASSAGES_PER_DOCUMENT):
            heading = " ".join(randomness.choice(pool).split()[:5])
            parts.append(f"## {heading}\n\n{section(randomness, pool, f'{document}-{number}')}")
        (folder / f"{document:06}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
