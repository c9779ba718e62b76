"""Writes many mutants into one source: each is a branch that the environment variable FORETOKEN_MUTANT turns on.

So the code is compiled once, and not once for each mutant. The source is read with tree-sitter. A mutant is an entry of
`cargo mutants --list --json`: its kind (`genre`), the place that it changes (`span`) and the text that it puts there
(`replacement`). Some mutants cannot be branches, such as those of a `const fn`.
"""

import tree_sitter
import tree_sitter_rust

PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))

# Added to the crate's lib.rs. Mutant 0 is no mutant.
FUNCTION = """
/// True if the mutant `number` is turned on.
pub(crate) fn mutant(number: u32) -> bool {
    static ON: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *ON.get_or_init(|| std::env::var("FORETOKEN_MUTANT").map_or(0, |on| on.parse().expect("a number"))) == number
}
"""


class NoSwitch(Exception):
    """The mutant cannot be a branch."""


class Edit:
    """A change of the bytes from `start` to `end`. `text` makes the new text from a function that renders a node."""

    def __init__(self, start, end, text):
        self.start, self.end, self.text = start, end, text


def switched(source, mutants):
    """The text of `source` with the branches of `mutants`, by number, and the numbers that cannot be branches."""
    data = source.encode()
    root = PARSER.parse(data).root_node
    lines = source.splitlines(keepends=True)

    def offset(place):
        before = "".join(lines[: place["line"] - 1]) + lines[place["line"] - 1][: place["column"] - 1]
        return len(before.encode())

    edits, refused = [], []
    for number, mutant in mutants.items():
        start, end = offset(mutant["span"]["start"]), offset(mutant["span"]["end"])
        on = f"crate::mutant({number})"
        try:
            edit = MAKERS[mutant["genre"]](root, start, end, mutant["replacement"], on)
            if any((edit.start, edit.end) == (other.start, other.end) for other in edits):
                raise NoSwitch
            edits.append(edit)
        except NoSwitch:
            refused.append(number)
    text = render(data, edits, 0, len(data)).decode()
    assert all(n in refused or f"crate::mutant({n})" in text for n in mutants), "a branch is lost"
    return text, refused


def render(data, edits, start, end):
    """The bytes from `start` to `end` with all edits that lie in them."""
    out, at = [], start
    for edit in sorted(edits, key=lambda e: (e.start, e.start < e.end, -e.end)):
        if edit.start < at:
            continue  # It lies in an edit before it, which renders it.

        def of(node, edit=edit):
            first, last = node.start_byte, node.end_byte
            within = [e for e in edits if first <= e.start and e.end <= last and e is not edit]
            # What is added before or behind the node is no part of it.
            return render(data, [e for e in within if e.start < e.end or first < e.start < last], first, last)

        out += [data[at : edit.start], edit.text(of)]
        at = edit.end
    return b"".join([*out, data[at:end]])


def parents(node):
    while node is not None:
        yield node
        node = node.parent


def refuse_constants(node):
    """Constants and functions that are computed by the compiler cannot read the environment."""
    for outer in parents(node):
        modifiers = [child.text for child in outer.children if child.type == "function_modifiers"]
        if outer.type in ("const_item", "static_item") or any(b"const" in text for text in modifiers):
            raise NoSwitch
        if outer.type == "function_item":
            return


def node_at(root, start, end, *kinds):
    """The innermost node of one of `kinds` that has the bytes from `start` to `end`."""
    found = next((n for n in parents(root.descendant_for_byte_range(start, end)) if n.type in kinds), None)
    if found is None:
        raise NoSwitch
    refuse_constants(found)
    return found


def function(root, start, end, replacement, on):
    node_at(root, start, end, "function_item")
    value = "" if replacement == "()" else " " + replacement
    return Edit(start, start, lambda _: f"if {on} {{ return{value}; }} ".encode())


def binary(root, start, end, replacement, on):
    node = node_at(root, start, end, "binary_expression", "compound_assignment_expr", "let_chain")
    operator = node.child_by_field_name("operator")
    if node.type == "let_chain" or operator is None or (operator.start_byte, operator.end_byte) != (start, end):
        raise NoSwitch
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")

    def text(of):
        both = [b"(%s %s %s)" % (of(left), o, of(right)) for o in (replacement.encode(), operator.text)]
        return b"(if %s { %s } else { %s })" % (on.encode(), *both)

    return Edit(node.start_byte, node.end_byte, text)


def unary(root, start, end, replacement, on):
    node = node_at(root, start, end, "unary_expression")
    operator, value = node.children
    if (operator.start_byte, operator.end_byte) != (start, end):
        raise NoSwitch
    text = lambda of: b"(if %s { (%s) } else { (%s%s) })" % (on.encode(), of(value), operator.text, of(value))
    return Edit(node.start_byte, node.end_byte, text)


def arm(root, start, end, replacement, on):
    node = node_at(root, start, end, "match_arm").child_by_field_name("pattern")
    guard = node.child_by_field_name("condition")
    if guard is None:
        return Edit(node.end_byte, node.end_byte, lambda _: f" if !{on}".encode())
    return Edit(guard.start_byte, guard.end_byte, lambda of: b"!%s && (%s)" % (on.encode(), of(guard)))


def guard(root, start, end, replacement, on):
    pattern = node_at(root, start, end, "match_arm").child_by_field_name("pattern")
    node = pattern.child_by_field_name("condition")
    if node is None or (node.start_byte, node.end_byte) != (start, end):
        raise NoSwitch
    form = b"(%s || (%s))" if replacement == "true" else b"(!%s && (%s))"
    return Edit(start, end, lambda of: form % (on.encode(), of(node)))


def field(root, start, end, replacement, on):
    node = node_at(root, start, end, "field_initializer", "shorthand_field_initializer")
    struct = next(n for n in parents(node) if n.type == "struct_expression")
    base = next((n for n in node.parent.children if n.type == "base_field_initializer"), None)
    name = node.child_by_field_name("field") or node.children[0]
    value = node.child_by_field_name("value") or name
    if base is None:
        raise NoSwitch
    rest = base.children[-1].text
    if rest == b"Default::default()":
        rest = b"<%s as Default>::default()" % struct.child_by_field_name("name").text
    text = lambda of: b"%s: if %s { (%s).%s } else { %s }" % (name.text, on.encode(), rest, name.text, of(value))
    return Edit(node.start_byte, node.end_byte, text)


MAKERS = {
    "FnValue": function,
    "BinaryOperator": binary,
    "UnaryOperator": unary,
    "MatchArm": arm,
    "MatchArmGuard": guard,
    "StructField": field,
}
