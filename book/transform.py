"""From an executed notebook to a source of the book: figures, links, formulas; complaints."""

import re

from nbformat import NotebookNode

TEX = re.compile(r"\$([^$<>]+)\$")
CELL = re.compile(r"(<t[dh][^>]*>)([^<]+)(?=</t[dh]>)")
# a sign, and that of an exponent; not the hyphen of a name, a date or a range of versions
SIGN = re.compile(r"(?<![\w)\]])-(?=\.?\d)|(?<=\de)-(?=\d)")


def own(output: NotebookNode) -> dict:
    """What implicitnn.pages attached to an output."""
    return output.get("metadata", {}).get("implicitnn", {})


def complaints(name: str, notebook: NotebookNode) -> list[str]:
    """Output that must not reach a reader: warnings and errors."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                found.append(f"{name}: error {output.ename}: {output.evalue}")
            elif output.output_type == "stream" and output.name == "stderr":
                found.append(f"{name}: text on standard error: {output.text.strip()[:500]}")
            elif own(output).get("kind") != "figure" and "image/" in " ".join(
                output.get("data", {})
            ):
                found.append(f"{name}: an image without caption: use page.figure")
    return found


def with_figures(name: str, notebook: NotebookNode) -> NotebookNode:
    """Turn figure outputs into MyST figures: number, caption leading to the source, alt text."""
    link = f"Source: {{download}}`notebooks/{name}.md <source/{name}.md>`."
    for cell in notebook.cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.metadata["tags"].append("remove-cell")
        for output in cell.get("outputs", []):
            meta = own(output)
            if meta.get("kind") != "figure":
                continue
            caption = re.sub(r"Source: \S+\.md\.$", "", meta["caption"]).strip()
            cell.metadata["mystnb"] = {
                "figure": {"name": meta["name"], "caption": f"{caption} {link}"},
                "image": {"alt": meta["alt"]},
            }
    return notebook


def with_minus(html: str) -> str:
    """Tables in which a hyphen before a number is a minus, but for cells that hold TeX."""

    def signed(cell: re.Match) -> str:
        text = cell[2]
        return cell[1] + (text if "$" in text else SIGN.sub("\u2212", text))

    return CELL.sub(signed, html)


def with_links_and_tex(notebook: NotebookNode, claims: list[dict]) -> NotebookNode:
    """Lead from every claim of the ledger's table to its page, and between notebooks; set TeX.

    Numbers in tables get the sign of the minus, which is as wide as a digit and breaks no line.

    In the sources a link names the file, so that it works in an editor; in the site it names the
    document, which is an executed notebook. TeX between dollars in a table is marked for MathJax.
    """
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"\]\((\d\d_\w+)\.md([)#])", r"](\1\2", cell.source)
        for output in cell.get("outputs", []):
            if "text/html" not in output.get("data", {}):
                continue
            table = TEX.sub(
                r'<span class="math notranslate nohighlight">\\(\1\\)</span>',
                with_minus(output.data["text/html"]),
            )
            if own(output).get("kind") == "ledger":
                for claim in claims:
                    link = f'<a href="{claim["notebook"]}.html">{claim["id"]}</a>'
                    table = table.replace(f"<td>{claim['id']}</td>", f"<td>{link}</td>")
            output.data["text/html"] = table
    return notebook
