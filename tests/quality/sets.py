"""Makes retrieval sets of manual pages, for shared/ingest/examples/evaluate.rs.

    sets.py en FOLDER...       the NAME line of a page asks for the page without it (English)
    sets.py zh FOLDER...       the same with Chinese pages
    sets.py cross N FOLDER...  the English NAME line asks for the Chinese page of the same name: N
                               questions, and as many more pages that nobody asks for
    sets.py short-en N FOLDER... , short-zh N FOLDER...
                               N questions and pages of en or zh, the pages' beginnings only
    sets.py mixed N FOLDER...  N passages of both and of Rust's documentation, for times and memory

Folders hold a tree like /usr/share/man. The set goes to standard output:
{"docs": [{"id", "title", "text"}], "qs": [{"q", "rel": {"<id>": 1}}]}
"""

import gzip
import html
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

DOCUMENT_MAX_CHARS = 4000
# Pages that are embedded are short: a small model on a small machine takes a second for 300 characters.
EMBEDDED_DOCUMENT_MAX_CHARS = 300
QUERIES_OF_A_LANGUAGE = 250
HAN = re.compile(r"[\u4e00-\u9fff]")
NAME_HEADINGS = "NAME|名称|名字|名字 \\(NAME\\)|NAME 名称|名称 \\(NAME\\)"
NAME_SECTION = re.compile(rf'(?ms)^\.SH\s+"?(?:{NAME_HEADINGS})[^\n]*\n(.*?)(?=^\.S[HS])')


class Page:
    """A manual page: its file name, what its NAME line says, and the rest as plain text."""

    def __init__(self, path: Path) -> None:
        self.file = path.name
        source = gzip.decompress(path.read_bytes()).decode("utf-8", "ignore")
        source = re.sub(r'(?m)^[.\']\\".*$', "", source)
        head = NAME_SECTION.search(source)
        self.gloss = gloss(head.group(1)) if head else None
        self.text = plain(source[head.end() :] if head else source)


def plain(roff: str) -> str:
    """Without requests and escapes, on one line."""
    text = re.sub(r"(?m)^\.[A-Za-z]+ ?", "", roff)
    text = re.sub(r"\\f[A-Z]|\\&|\\\|", "", text).replace("\\-", "-")
    return re.sub(r"\s+", " ", text)


def gloss(name_section: str) -> str | None:
    """What comes after the dash: "ls - list directory contents"."""
    parts = re.split(r"\s-+\s|—|――|-- ", plain(name_section), maxsplit=1)
    return parts[1].strip(" .。") if len(parts) == 2 else None


def files(folders: list[str], languages: str) -> Iterator[Path]:
    for folder in folders:
        found = sorted(Path(folder).glob(f"{languages}/**/*.gz"))
        yield from (path for path in found if not path.is_symlink())


def pages(folders: list[str], languages: str) -> Iterator[Page]:
    return map(Page, files(folders, languages))


def english(folders: list[str]) -> Iterator[Page]:
    return pages(folders, "man[1-8]")


def chinese(folders: list[str]) -> Iterator[Page]:
    return pages(folders, "zh_CN")


def is_question(text: str | None, chinese_one: bool) -> bool:
    if text is None:
        return False
    return len(HAN.findall(text)) >= 4 if chinese_one else len(text.split()) >= 3


def known_items(found: Iterator[Page], chinese_ones: bool) -> tuple[list[dict], list[dict]]:
    documents, queries, seen = [], [], set()
    for page in found:
        if is_question(page.gloss, chinese_ones) and page.gloss not in seen:
            seen.add(page.gloss)
            name = f"m{len(documents)}"
            documents.append({"id": name, "title": "", "text": page.text[:DOCUMENT_MAX_CHARS]})
            queries.append({"q": page.gloss, "rel": {name: 1}})
    return documents, queries


def cross_language(count: int, folders: list[str]) -> tuple[list[dict], list[dict]]:
    wanted = {path.name for path in files(folders, "zh_CN")}
    glosses = {}
    for path in files(folders, "man[1-8]"):
        if path.name in wanted and is_question((page := Page(path)).gloss, False):
            glosses.setdefault(page.file, page.gloss)
    chance, seen, asked, others = random.Random(1), set(), [], []
    for page in chinese(folders):
        text = page.text[:EMBEDDED_DOCUMENT_MAX_CHARS]
        if page.file not in seen and len(HAN.findall(text)) >= 40:
            seen.add(page.file)
            document = {"id": page.file, "title": "", "text": text}
            (asked if page.file in glosses else others).append(document)
    asked = chance.sample(asked, min(count, len(asked)))
    others = chance.sample(others, min(len(asked), len(others)))
    queries = [{"q": glosses[x["id"]], "rel": {x["id"]: 1}} for x in asked]
    return asked + others, queries


def shortened(count: int, sets: tuple[list[dict], list[dict]]) -> tuple[list[dict], list[dict]]:
    chosen = random.Random(1).sample(list(zip(*sets, strict=True)), count)
    documents = [{**x, "text": x["text"][:EMBEDDED_DOCUMENT_MAX_CHARS]} for x, _ in chosen]
    return documents, [query for _, query in chosen]


def rust_documentation() -> Iterator[tuple[str, str]]:
    home = Path.home()
    for path in sorted(home.glob(".rustup/toolchains/*/share/doc/**/*.html")):
        text = path.read_text(encoding="utf-8", errors="ignore")
        yield path.name, html.unescape(re.sub(r"<[^>]+>", " ", text))
    for path in sorted(home.glob(".cargo/registry/src/*/*/src/**/*.rs")):
        lines = path.read_text(encoding="utf-8", errors="ignore").splitlines()
        comments = (x.strip()[3:] for x in lines if x.strip().startswith(("///", "//!")))
        yield path.name, "\n".join(comments)


def mixed(count: int, folders: list[str]) -> tuple[list[dict], list[dict]]:
    texts = [(p.file, p.text) for p in [*english(folders), *chinese(folders)]]
    texts += [(name, text) for name, text in rust_documentation() if len(text) > 200]
    chance = random.Random(1)
    chance.shuffle(texts)
    documents = []
    for name, text in texts:
        text = re.sub(r"\s+", " ", text)
        step = 350 if HAN.search(text[:2000]) else 800
        for begin in range(0, len(text), step):
            passage = {"id": f"d{len(documents)}", "title": name, "text": text[begin : begin + step]}
            documents.append(passage)
    if len(documents) < count:
        sys.exit(f"there are only {len(documents)} passages on this machine")
    queries = []
    for found, chinese_ones in ((chinese(folders), True), (english(folders), False)):
        queries += known_items(found, chinese_ones)[1][:QUERIES_OF_A_LANGUAGE]
    return chance.sample(documents, count), [{"q": query["q"], "rel": {}} for query in queries]


def main() -> None:
    kind, *rest = sys.argv[1:]
    if kind == "mixed":
        documents, queries = mixed(int(rest[0]), rest[1:])
    elif kind == "cross":
        documents, queries = cross_language(int(rest[0]), rest[1:])
    elif kind in ("short-en", "short-zh"):
        found = {"short-en": english, "short-zh": chinese}[kind](rest[1:])
        documents, queries = shortened(int(rest[0]), known_items(found, kind == "short-zh"))
    else:
        found = {"en": english, "zh": chinese}[kind](rest)
        documents, queries = known_items(found, kind == "zh")
    if not documents:
        sys.exit("no pages were found")
    json.dump({"docs": documents, "qs": queries}, sys.stdout, ensure_ascii=False)
    print(f"{kind}: {len(documents)} documents, {len(queries)} queries", file=sys.stderr)


if __name__ == "__main__":
    main()
