"""Code asks a layer type for a property instead of comparing its name; each target has one table by name."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import caffejax
from caffejax.core.layers import Variants

PACKAGE = Path(caffejax.__file__).parent
# where types are defined, and where old names of types are replaced
EXEMPT = ("core/layers/", "core/data/", "forks/", "core/schema/upgrade.py")
TABLES = {  # what a target does with a type
    "cpu/frozen/layer_lowerings.py: ONEDNN.rule": "operations of oneDNN",
    "cpu/frozen/layer_lowerings.py: _ELEMENTWISE": "element-wise functions of oneDNN, in the same table",
    "dnn/nodes.py: TYPE_RULES": "how OpenCV lists, counts and fills layers",
    **{
        f"export/flax/emit_{name}.py: FLAX.rule": "flax source"
        for name in ("convolution", "dense", "elementwise", "normalization", "pooling", "shape_ops")
    },
    "export/flax/emit_elementwise.py: _EXPRESSIONS": "flax source of element-wise types, in the same table",
    "export/onnx/layer_converters.py: convert": "ONNX nodes",
    "export/onnx/layer_converters.py: _ELEMENTWISE": "ONNX nodes of element-wise types, in the same table",
    "pycaffe/_layer_range.py: _DECONV_RULES": "diffs in deconvolution passes",
    "tools/summary/net_summary.py: _FAMILIES_BY_TYPE": "families that traits do not determine",
    "tools/view/draw_style.py: DRAW_STYLES": "colours and texts of Caffe's draw_net",
}
OTHER_NAMES = {  # names of other things that are also names of types
    "export/flax/runtime_helpers.py: HELPERS": "modules in generated source",
}


def list_type_names() -> frozenset[str]:
    named_types = caffejax.layer_types()
    implementations = [layer_type.implementation for layer_type in named_types.values()]
    variants = [x for impl in implementations if isinstance(impl, Variants) for x in impl.types.values()]
    aliases = (alias for x in (*named_types.values(), *variants) for alias in x.signature.aliases)
    return frozenset({*named_types, *aliases})


TYPE_NAMES = list_type_names()


def find_comparisons(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each comparison with the name of a layer type."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others):
                texts = [text for part in (left, *others) for text in find_texts(part)]
                is_name_compared = any(ast.unparse(part).endswith(".type.name") for part in (left, *others))
                is_membership = isinstance(node.ops[0], ast.In | ast.NotIn)
                is_part_sought = is_membership and ast.unparse(others[0]).endswith(".type")
                if TYPE_NAMES.intersection(texts) or (texts and (is_name_compared or is_part_sought)):
                    yield node.lineno, ast.unparse(node)
            case ast.match_case(pattern=pattern) if TYPE_NAMES.intersection(find_texts(pattern)):
                yield pattern.lineno, ast.unparse(pattern)
            case ast.Call(func=ast.Attribute(value=value, attr="startswith" | "endswith")):
                if ast.unparse(value).endswith((".type", ".type.name")):
                    yield node.lineno, ast.unparse(node)


def find_tables(tree: ast.AST) -> Iterator[str]:
    """Yield the name of each dict by names of types, of each collection of such names, and of registering functions."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if name != "__all__" and any(map(holds_type_names, ast.walk(node))):
                    yield name
            case ast.FunctionDef(decorator_list=decorators):
                calls = [x for x in decorators if isinstance(x, ast.Call) and TYPE_NAMES.intersection(find_texts(x))]
                yield from (ast.unparse(call.func) for call in calls)


def holds_type_names(node: ast.AST) -> bool:
    """Return whether a display is a dict with names of types as keys, or has nothing but such names."""
    if isinstance(node, ast.Dict):
        return any(isinstance(key, ast.Constant) and key.value in TYPE_NAMES for key in node.keys)
    if not isinstance(node, ast.Set | ast.Tuple | ast.List) or not node.elts:
        return False
    return all(isinstance(element, ast.Constant) and element.value in TYPE_NAMES for element in node.elts)


def find_texts(node: ast.AST) -> list[str]:
    return [x.value for x in ast.walk(node) if isinstance(x, ast.Constant) and isinstance(x.value, str)]


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    """The modules that may not compare, by their paths in the package."""
    paths = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}
    return {name: ast.parse(path.read_text()) for name, path in paths.items() if not name.startswith(EXEMPT)}


def test_no_code_compares_the_name_of_a_layer_type(modules: dict[str, ast.Module]) -> None:
    assert len(modules) > 200
    comparisons = [f"{name}:{line}: {text}" for name, tree in modules.items() for line, text in find_comparisons(tree)]
    assert comparisons == []


def test_tables_by_type_are_listed(modules: dict[str, ast.Module]) -> None:
    tables = {f"{name}: {table}" for name, tree in modules.items() for table in find_tables(tree)}
    assert tables == {*TABLES, *OTHER_NAMES}


@pytest.mark.parametrize(
    "code",
    [
        'if layer.type == "Softmax": pass',
        'if "Softmax" != layer.type.name: pass',
        'x = layer.type in ("Data", "other")',
        'x = layer.type not in {"InnerProduct"}',
        'x = "Loss" in layer.type',
        'x = layer.type.name == "OfAnotherPackage"',
        'x = layer.type.name.startswith("Conv")',
        'match layer.type:\n    case "Input" | "Unknown":\n        pass',
    ],
)
def test_comparisons_are_found(code: str) -> None:
    assert len(list(find_comparisons(ast.parse(code)))) == 1


@pytest.mark.parametrize(
    ("code", "tables"),
    [
        ('COLORS = {"Convolution": "red"}', ["COLORS"]),
        ('def f():\n    colors: dict[str, str] = {**others, "Convolution": "red"}', ["colors"]),
        ('NAMES = frozenset({"Convolution", "Softmax"})', ["NAMES"]),
        ('@converts("Softmax")\ndef f(): pass', ["converts"]),
        ('pairs = [("Softmax", 3)]', []),
        ('param = LayerParameter(type="Input")', []),
    ],
)
def test_tables_are_found(code: str, tables: list[str]) -> None:
    assert list(find_tables(ast.parse(code))) == tables
