"""A MkDocs hook: the reference pages, from the public headers' comments and the Python docstrings.

Nothing is imported and nothing is written into the tree: the pages exist inside the build only. Also
leaves entries out of the navigation whose page is not there, so that a partial checkout still builds.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path
from typing import Any, Iterator, List, Tuple

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ["_attention", "_inventory", "flash_attn", "sdpa", "jax", "bench", "draw"]
PROGRAMS = ["bench", "draw"]  # run by `python -m`: of these, what the module says of itself


def _undecorated(block: str) -> str:
    """A comment without its marks."""
    block = re.sub(r"^\s*/\*\*?|\*/\s*$", "", block.strip())
    lines = [re.sub(r"^\s*(?:\*(?!\*)|///?<?) ?", "", line) for line in block.splitlines()]
    return "\n".join(lines).strip()


def _prose(comment: str) -> str:
    """Doxygen's marks as Markdown: \\param becomes a list, \\return a paragraph."""
    out: List[str] = []
    listing = False
    for line in comment.splitlines():
        parameter = re.match(r"\\param\s+(\w+)\s*(.*)", line)
        if parameter:
            if not listing:
                out.append("")
            out.append(f"- `{parameter.group(1)}`: {parameter.group(2)}")
            listing = True
            continue
        returned = re.match(r"\\(return|throws)\s*(.*)", line)
        if returned:
            word = {"return": "Returns", "throws": "Throws"}[returned.group(1)]
            out += ["", f"**{word}** {returned.group(2)}"]
            listing = False
            continue
        if listing and line.startswith(" "):
            out.append("  " + line.strip())
            continue
        if listing:
            out.append("")
            listing = False
        out.append(re.sub(r"\\throws", "**Throws**", line))
    text = "\n".join(out)
    return re.sub(r"(?<![`\w])(\[[A-Z][\w, ]*\])", r"`\1`", text)


def _fenced(text: str, language: str = "sh") -> str:
    """Paragraphs that are indented as a whole, as code."""
    paragraphs = text.split("\n\n")
    for place, paragraph in enumerate(paragraphs):
        lines = paragraph.splitlines()
        if lines and all(line.startswith("  ") for line in lines):
            code = textwrap.dedent(paragraph)
            paragraphs[place] = f"```{language}\n{code}\n```"
    return "\n\n".join(paragraphs)


def _opening(text: str) -> str:
    """The comment that a file begins with."""
    if text.startswith("/*"):
        return _undecorated(text[: text.index("*/") + 2])
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line)
    return _undecorated("\n".join(lines))


def _declaration(code: str) -> str:
    """The first declaration in `code`: to the matching end of its braces, or to its semicolon."""
    depth, brackets = 0, 0
    for place, sign in enumerate(code):
        brackets += {"(": 1, ")": -1}.get(sign, 0)
        if brackets:
            continue
        if sign == "{":
            depth += 1
        if sign == "}":
            depth -= 1
            if depth == 0:
                end = code.find(";", place)
                return code[: end + 1 if 0 <= end - place < 40 else place + 1]
        if sign == ";" and depth == 0:
            return code[: place + 1]
    return code


def _head(declaration: str) -> str:
    """A function without its body, laid out anew."""
    brackets = 0
    for place, sign in enumerate(declaration):
        brackets += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "{" and not brackets:
            declaration = declaration[:place]
            break
    one_line = re.sub(r"\b(?:TILEFOLD_API|inline|constexpr) ", "", " ".join(declaration.split()))
    one_line = one_line.strip().rstrip(";") + ";"
    if len(one_line) <= 100:
        return one_line
    name, arguments = one_line.split("(", 1)
    return name + "(\n    " + arguments.replace(", ", ",\n    ")


def _signature(code: str) -> Tuple[str, str]:
    """(name, what to show): types whole, inline functions without their bodies."""
    declaration = _declaration(code).strip()
    kind = re.match(
        r"(?:typedef )?(?:enum(?: class)?|struct|class)\s+(\w+)", re.sub(r"^template <[^>]*>\s*", "", declaration)
    )
    if kind:
        return kind.group(1), declaration
    head = _head(declaration)
    name = re.search(r"(\w+)\s*\(", head)
    return (name.group(1) if name else head.split()[-1].rstrip(";")), head


def _is_top_level(text: str, place: int) -> bool:
    line = text.rfind("\n", 0, place) + 1
    return not text[line:place].strip() and place == line


def _header_entries(text: str) -> Iterator[Tuple[str, str, str]]:
    """(name, declaration, comment) of everything documented at the outermost level."""
    for found in re.finditer(r"/\*\* .*?\*/|(?:^///(?!<)[^\n]*\n)+", text, re.S | re.M):
        if not _is_top_level(text, found.start()):
            continue
        name, shown = _signature(text[found.end() :].lstrip("\n"))
        yield name, shown, _undecorated(found.group())


def header_page(path: Path, title: str, language: str) -> str:
    text = path.read_text(encoding="utf-8")
    opening = _fenced(_opening(text), language)
    parts = [f"# {title}", f"`#include <tilefold/{path.name}>`", opening]
    for name, shown, comment in _header_entries(text):
        parts += [f"## {name}", f"```{language}\n{shown}\n```", _prose(comment)]
    return "\n\n".join(parts) + "\n"


def _docstring(node: Any) -> str:
    """Google-style sections as Markdown."""
    text = ast.get_docstring(node) or ""
    out: List[str] = []
    section = ""
    for line in text.splitlines():
        heading = re.fullmatch(r"(Args|Returns|Raises):", line.strip())
        if heading:
            section = heading.group(1)
            out += ["", f"**{section}**", ""]
            continue
        if section and line and not line.startswith(" "):
            section = ""
            out.append("")
        item = re.match(r"    (\w[\w, ]*): (.*)", line) if section in ("Args", "Raises") else None
        if item:
            out.append(f"- `{item.group(1)}`: {item.group(2)}")
        elif section:
            out.append("  " + line.strip() if section != "Returns" else line.strip())
        else:
            out.append(line)
    text = "\n".join(out)
    text = re.sub(r":(?:func|class):`([^`]*)`", r"`\1`", text)
    return text.replace("``", "`")


def _python_signature(node: ast.FunctionDef) -> str:
    arguments = ast.unparse(node.args)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    one_line = f"{node.name}({arguments}){returns}"
    if len(one_line) <= 88:
        return one_line
    parts: List[str] = []
    depth, start = 0, 0
    for place, sign in enumerate(arguments):
        depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            parts.append(arguments[start:place].strip())
            start = place + 1
    parts.append(arguments[start:].strip())
    return f"{node.name}(\n    " + ",\n    ".join(parts) + f",\n){returns}"


def _python_entries(module: str) -> Iterator[str]:
    tree = ast.parse((ROOT / "python" / "tilefold" / f"{module}.py").read_text(encoding="utf-8"))
    public = "tilefold" if module.startswith("_") else f"tilefold.{module}"
    if not module.startswith("_"):
        yield f"## {public}\n\n" + _fenced(_docstring(tree))
    if module in PROGRAMS:
        return
    for node, following in zip(tree.body, [*tree.body[1:], None]):
        if isinstance(node, ast.AnnAssign) and isinstance(following, ast.Expr):
            shown = ast.unparse(node)
            note = str(ast.literal_eval(following.value))
            note = re.sub(r":(?:func|class):`([^`]*)`", r"`\1`", note).replace("``", "`")
            yield f"### {public}.{ast.unparse(node.target)}\n\n```python\n{shown}\n```\n\n{note}"
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            if "overload" in decorators or not ast.get_docstring(node):
                continue
            if isinstance(node, ast.FunctionDef):
                shown = _python_signature(node)
                yield f"### {public}.{node.name}\n\n```python\n{shown}\n```\n\n" + _docstring(node)
                continue
            fields = []
            for index, member in enumerate(node.body):
                if not isinstance(member, ast.AnnAssign):
                    continue
                following = node.body[index + 1 : index + 2]
                note = ""
                if following and isinstance(following[0], ast.Expr):
                    note = ": " + str(ast.literal_eval(following[0].value)).replace("``", "`")
                fields.append(f"- `{ast.unparse(member.target)}`{note}")
            yield f"### {public}.{node.name}\n\n" + _docstring(node) + "\n\n" + "\n".join(fields)


def python_page() -> str:
    parts = ["# Python reference", "The package `tilefold`; its version is `tilefold.__version__`."]
    for module in PYTHON:
        parts += _python_entries(module)
    return "\n\n".join(parts) + "\n"


def on_files(files: Files, config: Any) -> Files:
    include = ROOT / "include" / "tilefold"
    pages = {
        "api-c.md": header_page(include / "tilefold.h", "C reference", "c"),
        "api-cpp.md": header_page(include / "tilefold.hpp", "C++ reference", "cpp"),
        "api-python.md": python_page(),
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    have = {file.src_uri for file in files}

    def kept(entries: Any) -> Any:
        if isinstance(entries, list):
            return [entry for entry in map(kept, entries) if entry]
        if isinstance(entries, dict):
            found = {title: kept(entry) for title, entry in entries.items()}
            return {title: entry for title, entry in found.items() if entry}
        return entries if entries in have else None

    config.nav = kept(config.nav)
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Nothing is fetched from elsewhere: the theme's offline plugin names a script on the network."""
    return re.sub(r'<script src="https://unpkg\.com/[^"]*"></script>', "", output)


def on_post_template(output: str, template_name: str, config: Any) -> str:
    """The theme's page for addresses that are not there; an empty result leaves the page out.

    Its links begin at the server's root, which is not where the site lies, nor is there a server.
    """
    return "" if template_name == "404.html" and not config.site_url else output
