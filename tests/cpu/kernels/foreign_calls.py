"""Random valid and invalid calls of the functions in onednn.cc, with their expected results in NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

CONVOLUTIONS = ("convolution", "input_diff", "weight_diff", "convolution_diffs")
PRODUCTS = ("matmul", "matmul_diffs")
POOLINGS = ("max_pool", "max_pool_diff")
UPDATES, SUMS = ("momentum_update",), ("row_sums", "channel_moments", "normalization_sums")
RESPONSES = ("normalize_response", "normalize_response_diff")
RECTANGLES = ("rectangle_maxima", "rectangle_places")
FUNCTIONS = CONVOLUTIONS + PRODUCTS + POOLINGS + UPDATES + SUMS + RESPONSES + RECTANGLES
# which arrays a function takes and which it gives; a bias may come last where there is one
ROLES = {
    "convolution": (("x", "weight", "bias"), ("y",)),
    "input_diff": (("y", "weight"), ("x",)),
    "weight_diff": (("x", "y"), ("weight", "bias")),
    "convolution_diffs": (("x", "y", "weight"), ("x", "weight", "bias")),
    "matmul": (("a", "b", "bias"), ("c",)),
    "matmul_diffs": (("x", "y", "weight"), ("x", "weight")),
    "max_pool": (("x",), ("y", "indices")),
    "max_pool_diff": (("indices", "y"), ("x",)),
    "momentum_update": (("grad", "weight", "slot", "rate"), ("weight", "slot")),
    "row_sums": (("x",), ("sums",)),
    "channel_moments": (("x",), ("mean", "variance")),
    "normalization_sums": (("x", "y", "mean", "scale", "factor", "offset"), ("d_factor", "d_offset")),
    "normalize_response": (("x",), ("y",)),
    "normalize_response_diff": (("x", "y"), ("x",)),
    "rectangle_maxima": (("x", "rectangles"), ("y",)),
    "rectangle_places": (("x", "rectangles"), ("places",)),
}
MATRICES = ("x", "y")  # of the functions that sum rows; their other arrays are (channels,)
DTYPES = {"indices": jnp.int8, "rectangles": jnp.int32, "places": jnp.int32}  # of roles; others are float32
WINDOW_ATTRIBUTES = ("stride", "dilation", "low", "high")
MAX_NUMBER = 2**31 - 1
EDGE_NUMBERS = (-(2**63), -(2**31), -1, 0, 1, 2, 3, 5, 2**31, 2**32 + 1, 2**62, 2**63 - 1)
Array = jax.ShapeDtypeStruct


@dataclass(frozen=True)
class Call:
    """A foreign function's name without its prefix, its arguments, and the shapes of its results."""

    function: str
    operands: tuple[Array, ...]
    results: tuple[Array, ...]
    attributes: dict[str, Any]

    def __str__(self) -> str:
        arrays = [" ".join(f"{a.dtype}{a.shape}" for a in structs) for structs in (self.operands, self.results)]
        attributes = {name: np.asarray(value).tolist() for name, value in self.attributes.items()}
        return f"{self.function}: {arrays[0]} -> {arrays[1]}, {attributes}"

    def has_results(self) -> bool:
        """Return whether XLA makes the call: it omits calls without results."""
        return any(0 not in result.shape for result in self.results)

    def run(self, arrays: Sequence[Any], prefix: str = "caffejax_") -> list[np.ndarray]:
        """Return the results of the foreign function; raise its error."""
        results = jax.ffi.ffi_call(prefix + self.function, self.results)(*arrays, **self.attributes)
        return [np.asarray(result) for result in results]


def draw_array(random: np.random.Generator, array: Array) -> np.ndarray:
    """Draw whole numbers so small that sums of their products are exact in any order."""
    return random.integers(-3, 4, array.shape).astype(array.dtype)


def draw_valid_call(random: np.random.Generator, function: str) -> Call:
    """Draw a call that must succeed."""
    draws = (
        (CONVOLUTIONS, _draw_convolution),
        (PRODUCTS, _draw_product),
        (POOLINGS, _draw_pooling),
        (UPDATES, _draw_update),
        (SUMS, _draw_sum),
        (RESPONSES, _draw_response),
        (RECTANGLES, _draw_rectangles),
    )
    draw = next(draw for functions, draw in draws if function in functions)
    shapes, attributes = draw(random, function)
    if random.random() < 0.5:
        shapes.pop("bias", None)
    operands, results = (
        tuple(Array(shapes[role], DTYPES.get(role, jnp.float32)) for role in roles if role in shapes)
        for roles in ROLES[function]
    )
    return Call(function, operands, results, attributes)


# size, inputs, outputs, groups, kernel, stride, low and high padding of convolutions larger than those of random calls
WIDE_CONVOLUTIONS = (
    ((20, 51), 16, 48, 1, (3, 3), (1, 1), (1, 1), (1, 1)),
    ((13, 60), 17, 50, 1, (2, 3), (1, 1), (0, 2), (1, 0)),
    ((21, 60), 23, 49, 1, (3, 1), (2, 1), (2, 0), (0, 0)),
    ((5, 300), 16, 70, 1, (1, 1), (1, 1), (0, 0), (0, 0)),
    ((20, 24), 16, 48, 1, (1, 1), (1, 1), (0, 0), (0, 0)),
    ((20, 100), 16, 48, 1, (1, 1), (3, 2), (0, 0), (0, 0)),
    ((2, 2), 17, 50, 1, (1, 1), (2, 2), (0, 0), (1, 1)),  # some pixels read only padding
    ((20, 64), 32, 128, 1, (3, 3), (1, 1), (1, 0), (0, 1)),
    ((8, 7), 5, 130, 1, (1, 1), (2, 2), (0, 0), (0, 0)),
    ((8, 7), 23, 25, 1, (1, 1), (3, 2), (2, 1), (0, 3)),
    ((7, 6), 402, 340, 1, (1, 1), (1, 1), (0, 0), (0, 0)),
    ((7, 6), 340, 402, 1, (1, 1), (1, 1), (0, 0), (1, 0)),
    ((9, 8), 340, 402, 1, (1, 1), (2, 3), (0, 0), (0, 0)),
    ((21, 23), 3, 64, 1, (7, 7), (2, 2), (3, 3), (3, 3)),
    ((19, 9), 3, 33, 1, (3, 5), (2, 3), (0, 2), (0, 1)),
    ((9, 200), 2, 40, 1, (5, 5), (1, 4), (4, 0), (4, 0)),
    ((20, 21), 48, 48, 1, (3, 3), (1, 1), (1, 1), (1, 1)),
    ((22, 25), 64, 80, 1, (3, 3), (1, 1), (0, 2), (2, 1)),
    ((21, 20), 96, 128, 2, (3, 3), (1, 1), (2, 0), (2, 0)),
    ((10, 11), 128, 96, 1, (3, 3), (1, 1), (1, 1), (1, 1)),
    ((30, 29), 64, 64, 1, (3, 3), (1, 1), (0, 0), (0, 0)),
    ((15, 14), 48, 64, 1, (5, 5), (1, 1), (2, 2), (2, 2)),
    ((17, 16), 96, 128, 2, (5, 5), (1, 1), (4, 1), (0, 3)),
)
DILATED_CONVOLUTIONS = (  # the same, and the dilation
    ((20, 24), 48, 64, 1, (3, 3), (1, 1), (2, 2), (2, 2), (2, 2)),
    ((31, 29), 64, 80, 1, (3, 3), (1, 1), (0, 6), (3, 1), (3, 3)),
    ((21, 20), 96, 128, 2, (3, 3), (1, 1), (2, 4), (4, 0), (2, 2)),
    ((24, 20), 64, 48, 1, (3, 3), (1, 1), (2, 1), (2, 1), (2, 1)),
    ((28, 31), 48, 64, 1, (5, 5), (1, 1), (4, 8), (4, 0), (2, 2)),
)


def make_wide_calls() -> list[Call]:
    """Return valid calls of all functions of convolutions, whose sizes choose other implementations than oneDNN's."""
    calls = []
    for size, inputs, outputs, groups, *window in (*WIDE_CONVOLUTIONS, *DILATED_CONVOLUTIONS):
        kernel, stride, low, high, dilation = map(np.array, (*window, (1, 1))[:5])
        shapes: dict[str, tuple[int, ...]] = {
            "x": (2, *size, inputs),
            "weight": (outputs, inputs // groups, *map(int, kernel)),
            "y": (2, *map(int, (np.array(size) + low + high - dilation * (kernel - 1) - 1) // stride + 1), outputs),
            "bias": (outputs,),
        }
        attributes = {"stride": stride, "dilation": dilation, "low": low, "high": high}
        attributes |= {"groups": np.int64(groups)}
        for function in CONVOLUTIONS:
            relu = {"relu": outputs % 2 == 0} if function == "convolution" else {}
            operands, results = (tuple(Array(shapes[role], jnp.float32) for role in roles) for roles in ROLES[function])
            calls.append(Call(function, operands, results, attributes | relu))
    return calls


def _draw_convolution(random: np.random.Generator, function: str) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    axes = random.choice([1, 2, 2, 2, 3])
    groups = int(random.choice([1, 1, 2, 3]))
    inputs, outputs = groups * int(random.choice([1, 1, 2, 8, 16])), groups * int(random.choice([1, 2, 5, 16]))
    kernel, stride, dilation = random.integers(1, 4, (3, axes))
    low, high = random.integers(0, 4, (2, axes))
    extent = dilation * (kernel - 1) + 1
    size = np.maximum(extent - low - high, 1) + random.integers(0, 12 // axes, axes)
    output = (size + low + high - extent) // stride + 1
    batch = int(random.integers(1, 4))
    attributes = {"stride": stride, "dilation": dilation, "low": low, "high": high, "groups": np.int64(groups)}
    if function == "convolution":
        attributes["relu"] = bool(random.random() < 0.5)
    shapes = {
        "x": (batch, *map(int, size), inputs),
        "weight": (outputs, inputs // groups, *map(int, kernel)),
        "y": (batch, *map(int, output), outputs),
        "bias": (outputs,),
    }
    return shapes, attributes


def _draw_product(random: np.random.Generator, function: str) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    m, k, n = map(int, random.integers(1, 40, 3))
    transpose_a, transpose_b, relu = (bool(b) for b in random.integers(0, 2, 3))
    if function == "matmul_diffs":
        return {"x": (m, k), "y": (m, n), "weight": (k, n) if transpose_a else (n, k)}, {"transpose": transpose_a}
    shapes = {"a": (k, m) if transpose_a else (m, k), "b": (n, k) if transpose_b else (k, n), "c": (m, n), "bias": (n,)}
    return shapes, {"transpose_a": transpose_a, "transpose_b": transpose_b, "relu": relu}


def _draw_pooling(random: np.random.Generator, function: str) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    kernel, stride = random.integers(1, 5, (2, 2))
    low, high = random.integers(0, kernel, (2, 2))
    size = np.maximum(kernel - low - high, 1) + random.integers(0, 6, 2)
    output = (size + low + high - kernel) // stride + 1
    batch, channels = int(random.integers(1, 4)), int(random.choice([1, 3, 8, 16, 19]))
    x, y = (batch, *map(int, size), channels), (batch, *map(int, output), channels)
    attributes = {"kernel": kernel, "stride": stride, "low": low, "high": high}
    return {"x": x, "y": y, "indices": y}, attributes


def _draw_update(random: np.random.Generator, function: str) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    shape = (*map(int, random.integers(1, 6, random.integers(1, 5))), int(random.choice([1, 20, 40_000])))
    attributes = {name: np.float32(random.choice([0, 0.5, 1, 2])) for name in ("lr_mult", "decay", "momentum")}
    return {"grad": shape, "weight": shape, "slot": shape, "rate": ()}, attributes


def _draw_sum(random: np.random.Generator, function: str) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    rows, channels = int(random.choice([1, 63, 130, 1000])), int(random.choice([1, 16, 70, 129]))
    matrices = dict.fromkeys(MATRICES, (rows, channels))
    shapes = {role: matrices.get(role, (channels,)) for role in sum(ROLES[function], ())}
    attributes: dict[str, Any] = {}
    if function == "row_sums":
        attributes["factor"] = np.float32(random.choice([0.5, 1, 2]))
    if function == "normalization_sums":
        attributes["relu"] = bool(random.integers(2))
    return shapes, attributes


def _draw_response(random: np.random.Generator, function: str) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    shape = (*map(int, random.integers(1, 10, 3)), int(random.choice([1, 3, 16, 20, 150])))
    attributes: dict[str, Any] = {
        "size": np.int64(random.choice([1, 3, 5, 7, 31])),
        "within_channel": bool(random.integers(2)),
    }
    attributes |= {"k": np.float32(random.choice([1, 2])), "alpha": np.float32(random.choice([0, 0.25, 1]))}
    attributes["beta"] = np.float32(random.choice([0.75, 0.75, 0.5, 1]))
    return {"x": shape, "y": shape}, attributes


def _draw_rectangles(random: np.random.Generator, function: str) -> tuple[dict[str, tuple[int, ...]], dict[str, Any]]:
    *size, channels, count = map(int, random.integers(1, [4, 5, 5, 40, 30]))  # the numbers of rectangles are -3 to 3
    return {"x": (*size, channels), "rectangles": (count, 5), "y": (count, channels), "places": (count, channels)}, {}


def alter(random: np.random.Generator, call: Call) -> Call:
    """Return the call with one random change; it may still be valid, see `is_valid`."""
    parts = ["array", "array", "array", "count"] + ["attribute", "attribute", "attributes"] * bool(call.attributes)
    part = random.choice(parts)
    if part == "attribute":
        name = str(random.choice(list(call.attributes)))
        return replace(call, attributes=call.attributes | {name: _alter_attribute(random, call.attributes[name])})
    if part == "attributes":
        return replace(call, attributes=_alter_attributes(random, call.attributes))
    field = str(random.choice(["operands", "results"]))
    arrays = list(getattr(call, field)) or [Array((1,), jnp.float32)]
    i = int(random.integers(len(arrays)))
    if part == "array":
        arrays[i] = _alter_array(random, arrays[i])
    elif random.random() < 0.5:
        del arrays[i]
    else:
        arrays.insert(i, arrays[int(random.integers(len(arrays)))])
    return replace(call, **{field: tuple(arrays)})


def _alter_array(random: np.random.Generator, array: Array) -> Array:
    if not array.shape:
        return Array((2,), array.dtype)
    shape, i = list(array.shape), int(random.integers(len(array.shape)))
    match random.choice(["size", "size", "size", "size", "less", "more", "order", "dtype"]):
        case "size":
            shape[i] = int(random.choice([0, 1, max(shape[i] - 1, 0), shape[i] + 1, shape[i] + 2, shape[i] * 2]))
        case "less":
            del shape[i]
        case "more":
            shape.insert(i, int(random.integers(0, 3)))
        case "order":
            shape = [int(n) for n in random.permutation(shape)]
        case _:
            return Array(array.shape, random.choice([jnp.int8, jnp.int32, jnp.float16, jnp.bfloat16, jnp.complex64]))
    return Array(tuple(shape), array.dtype)


def _alter_attribute(random: np.random.Generator, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    edge_number = random.choice(np.array(EDGE_NUMBERS, np.int64))
    if np.ndim(value) == 0:
        # a float of another type; JAX takes it for an earlier call's number if both are equal, so it is none of those
        is_float = np.issubdtype(np.asarray(value).dtype, np.floating)
        return np.float64(edge_number) + 0.25 if is_float else edge_number
    i = int(random.integers(max(len(value), 1)))
    match random.choice(["number", "number", "number", "less", "more", "none"]):
        case "number":
            return np.array([*value[:i], edge_number, *value[i + 1 :]], np.int64)
        case "less":
            return value[1:]
        case "more":
            return np.insert(value, i, 1)
        case _:
            return value[:0]


def _alter_attributes(random: np.random.Generator, attributes: dict[str, Any]) -> dict[str, Any]:
    name = str(random.choice(list(attributes)))
    match random.choice(["without", "one more", "dtype"]):
        case "without":
            return {k: v for k, v in attributes.items() if k != name}
        case "one more":
            return attributes | {"more": np.int64(1)}
        case _:
            return attributes | {name: np.asarray(attributes[name], np.float64)}


def is_valid(call: Call) -> bool:
    """Return whether all arrays have elements and fit together, and the attributes are valid."""
    arrays = (*call.operands, *call.results)
    if any(0 in a.shape for a in arrays) or not _has_valid_attributes(call):
        return False
    shapes: dict[str, tuple[int, ...]] = {}
    for structs, roles in zip((call.operands, call.results), ROLES[call.function], strict=True):
        if not len(roles) - ("bias" in roles) <= len(structs) <= len(roles):
            return False
        for array, role in zip(structs, roles, strict=False):
            dtype = DTYPES.get(role, jnp.float32)
            if array.dtype != dtype or shapes.setdefault(role, array.shape) != array.shape:
                return False
    if call.function in POOLINGS:
        return _is_valid_pooling(call, shapes)
    if call.function in SUMS:
        x = shapes["x"]
        return len(x) == 2 and all(s == (x if role in MATRICES else x[1:]) for role, s in shapes.items())
    if call.function in RESPONSES:
        return (
            len(shapes["x"]) == 4
            and len(set(shapes.values())) == 1
            and bool(call.attributes["size"] % 2 == 1 <= call.attributes["size"])
        )
    if call.function in RECTANGLES:
        x, rectangles, result = shapes.values()
        return len(x) == 4 and rectangles[1:] == (5,) and result == (rectangles[0], x[3])
    if call.function in UPDATES:
        return np.prod(shapes.pop("rate")) == 1 and len(set(shapes.values())) == 1
    result = (
        _find_convolution_shape(call, shapes) if call.function in CONVOLUTIONS else _find_product_shape(call, shapes)
    )
    return result is not None and shapes.get("bias", result[-1:]) == result[-1:]


def _has_valid_attributes(call: Call) -> bool:
    example = draw_valid_call(np.random.default_rng(0), call.function).attributes
    dtypes = (
        {name: np.asarray(value).dtype for name, value in attributes.items()}
        for attributes in (example, call.attributes)
    )
    return next(dtypes) == next(dtypes)


def _find_convolution_shape(call: Call, shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the shape of y, if it follows from the shapes of x and weight; else None."""
    x, weight, y, a = shapes["x"], shapes["weight"], shapes["y"], call.attributes
    lists, groups = [a[name].tolist() for name in WINDOW_ATTRIBUTES], int(a["groups"])
    if not 3 <= len(x) <= 5 or any(n != len(x) for n in (len(weight), *(len(numbers) + 2 for numbers in lists))):
        return None
    if groups < 1 or weight[0] % groups or x[-1] != weight[1] * groups:
        return None
    size = []
    for n, k, stride, dilation, low, high in zip(x[1:-1], weight[2:], *lists, strict=True):
        num_positions = n + low + high - dilation * (k - 1)  # where a window may begin
        if min(stride, dilation) < 1 or min(low, high) < 0 or max(stride, dilation, n + low + high) > MAX_NUMBER:
            return None
        size.append((num_positions - 1) // stride + 1 if num_positions > 0 else 0)
    return y if y == (x[0], *size, weight[0]) else None


def _is_valid_pooling(call: Call, shapes: dict[str, tuple[int, ...]]) -> bool:
    x, y, a = shapes["x"], shapes["y"], {name: value.tolist() for name, value in call.attributes.items()}
    if len(x) != 4 or len(y) != 4 or shapes["indices"] != y or any(len(numbers) != 2 for numbers in a.values()):
        return False
    for n, out, k, stride, low, high in zip(x[1:3], y[1:3], *a.values(), strict=True):
        if not (0 < stride <= MAX_NUMBER and 0 <= low < k and 0 <= high < k):
            return False
        if n + low + high < k or out != (n + low + high - k) // stride + 1:
            return False
    return np.prod(a["kernel"]) < 128 and (x[0], x[3]) == (y[0], y[3])


def _find_product_shape(call: Call, shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the shape of the product, if it follows from the shapes of its factors; else None."""
    left, right, result = (shapes[role] for role in (("a", "b", "c") if "a" in shapes else ("x", "weight", "y")))
    if len(left) != 2 or len(right) != 2:
        return None
    (m, k), (inner_size, n) = left[:: _axis_step(call, "a")], right[:: _axis_step(call, "b")]
    return result if k == inner_size and result == (m, n) else None


def _axis_step(call: Call, factor: str) -> int:
    """Return -1 if a factor of a product is transposed, else 1."""
    if call.function == "matmul":
        return -1 if call.attributes[f"transpose_{factor}"] else 1
    return -1 if factor == "b" and not call.attributes["transpose"] else 1


def check_results(call: Call, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
    """Compare the results of a valid call with the expected ones, exactly: they are sums of products of small integers.

    Convolutions of 3x3 and 5x5 without stride, whose channels are multiples of 16, may be computed by
    Winograd's algorithm. Its points are not integers, so their results, except for the bias, may differ by 1e-5 of the
    largest. Means and variances are quotients of sums, and may differ by 1e-5. So may LRN, which computes roots.
    """
    shapes = {
        role: array.shape
        for roles, structs in zip(ROLES[call.function], (call.operands, call.results), strict=True)
        for role, array in zip(roles, structs, strict=False)
    }
    is_winograd_possible = (
        call.function in CONVOLUTIONS
        and shapes["weight"][2:] in ((3, 3), (5, 5))
        and np.all(call.attributes["stride"] == 1)
        and all(shapes[role][-1] % 16 == 0 for role in "xy")
    )
    for i, (actual, expected) in enumerate(zip(results, expected_results(call, arrays), strict=True)):
        role = ROLES[call.function][1][i]
        largest = np.abs(expected).max(initial=0) if is_winograd_possible and role != "bias" else 0
        largest = 1 if call.function in ("channel_moments", *RESPONSES) else largest
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * largest, err_msg=str(call))


def _select_from_rectangles(call: Call, inputs: dict[str, np.ndarray]) -> np.ndarray:
    x, result = inputs["x"], np.zeros(call.results[0].shape, call.results[0].dtype)
    for i, (image, *ranges) in enumerate(inputs["rectangles"]):
        row, end_row, column, end_column = np.maximum(ranges, 0)
        cells = x[np.clip(image, 0, len(x) - 1), row:end_row, column:end_column]
        if cells.size and call.function == "rectangle_maxima":
            result[i] = cells.max((0, 1))
        elif cells.size:
            rows, columns = np.divmod(cells.reshape(-1, x.shape[3]).argmax(0), cells.shape[1])
            result[i] = (row + rows) * x.shape[2] + column + columns
    return result


def expected_results(call: Call, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the expected results of a valid call."""
    roles, result_roles = ROLES[call.function]
    inputs = dict(zip(roles, arrays, strict=False))
    if call.function in POOLINGS:
        return _pool(call, inputs)
    if call.function == "row_sums":
        return [inputs["x"].sum(0) * call.attributes["factor"]]
    if call.function == "channel_moments":
        return [inputs["x"].mean(0, np.float64), inputs["x"].var(0, np.float64)]
    if call.function == "normalization_sums":
        x_hat = (inputs["x"] - inputs["mean"]) * inputs["scale"]
        positive = x_hat * inputs["factor"] + inputs["offset"] > 0
        diffs = np.where(positive, inputs["y"], 0) if call.attributes["relu"] else inputs["y"]
        return [(diffs * x_hat).sum(0), diffs.sum(0)]
    if call.function in RESPONSES:
        return [_normalize_response(call, inputs)]
    if call.function in RECTANGLES:
        return [_select_from_rectangles(call, inputs)]
    if call.function in UPDATES:
        lr_mult, decay, momentum = call.attributes.values()
        step = inputs["rate"] * lr_mult * (inputs["grad"] + decay * inputs["weight"]) + momentum * inputs["slot"]
        return [inputs["weight"] - step, step]
    results = {role: np.zeros(a.shape, np.float32) for role, a in zip(result_roles, call.results, strict=False)}
    if call.function in CONVOLUTIONS:
        _convolve(call, inputs, results)
    elif call.function == "matmul":
        a, b = (inputs[f] if _axis_step(call, f) == 1 else inputs[f].T for f in ("a", "b"))
        results["c"] = a @ b
    else:
        x, dy, weight = inputs["x"], inputs["y"], inputs["weight"]
        is_transposed = call.attributes["transpose"]
        results = {"x": dy @ (weight.T if is_transposed else weight), "weight": x.T @ dy if is_transposed else dy.T @ x}
    for output in results.keys() & {"y", "c"}:
        results[output] = results[output] + inputs.get("bias", np.float32(0))
        if call.attributes["relu"]:
            results[output] = np.maximum(results[output], 0)
    return list(results.values())


def _convolve(call: Call, inputs: dict[str, np.ndarray], results: dict[str, np.ndarray]) -> None:
    """Add the contribution of each kernel position to the results, which begin as zeros."""
    values = results | inputs
    padding = [(0, 0), *zip(call.attributes["low"], call.attributes["high"], strict=True), (0, 0)]
    x, dx = np.pad(values["x"], padding), np.pad(np.zeros_like(values["x"]), padding)
    y, weight = values["y"], values["weight"]
    for offset in np.ndindex(*weight.shape[2:]):
        axes = zip(offset, call.attributes["stride"], call.attributes["dilation"], y.shape[1:-1], strict=True)
        cells = tuple(slice(i * d, i * d + (n - 1) * s + 1, s) for i, s, d, n in axes)
        for inputs_slice, outputs_slice in _group_slices(int(call.attributes["groups"]), x.shape[-1], y.shape[-1]):
            cells_read, tap, output_cells = (
                (slice(None), *cells, inputs_slice),
                (outputs_slice, slice(None), *offset),
                (..., outputs_slice),
            )
            if "y" in results:
                results["y"][output_cells] += x[cells_read] @ weight[tap].T
            if "weight" in results:
                results["weight"][tap] += np.tensordot(y[output_cells], x[cells_read], (range(y.ndim - 1),) * 2)
            dx[cells_read] += y[output_cells] @ weight[tap]
    if "x" in results:
        inner_slices = (slice(low, low + n) for (low, _), n in zip(padding, results["x"].shape, strict=True))
        results["x"] = dx[tuple(inner_slices)]
    if "bias" in results:
        results["bias"] = y.sum(tuple(range(y.ndim - 1)))


def _pool(call: Call, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return the maxima and their positions, or the gradient of the pooled array."""
    kernel, stride, low, high = (call.attributes[name].tolist() for name in ("kernel", "stride", "low", "high"))
    shapes = dict(zip(sum(ROLES[call.function], ()), (a.shape for a in (*call.operands, *call.results)), strict=True))
    padding = [(0, 0), *zip(low, high, strict=True), (0, 0)]
    x = np.pad(inputs.get("x", np.zeros(shapes["x"], np.float32)), padding, constant_values=-np.inf)
    maxima, indices, dx = np.full(shapes["y"], -np.inf, np.float32), np.zeros(shapes["y"], np.int8), np.zeros_like(x)
    for cell_index, offset in enumerate(np.ndindex(*kernel)):
        axes = zip(offset, stride, shapes["y"][1:3], strict=True)
        cells = (slice(None), *(slice(i, i + (n - 1) * s + 1, s) for i, s, n in axes))
        indices[x[cells] > maxima] = cell_index
        maxima = np.maximum(maxima, x[cells])
        if "indices" in inputs:
            dx[cells] += np.where(inputs["indices"] == cell_index, inputs["y"], 0)
    if "x" in inputs:
        return [maxima, indices]
    return [dx[(slice(None), *(slice(lo, lo + n) for lo, n in zip(low, shapes["x"][1:3], strict=True)))]]


def _normalize_response(call: Call, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Return the normalized array or, from the diff of the result, the diff of the array."""
    x, a = inputs["x"].astype(np.float64), call.attributes
    axes, size = ((1, 2) if a["within_channel"] else (3,)), int(a["size"])
    k, alpha, beta = (float(a[name]) for name in ("k", "alpha", "beta"))

    def sum_windows(values: np.ndarray) -> np.ndarray:
        for axis in axes:
            half = min(size // 2, values.shape[axis])
            padded = np.pad(values, [(half, half) if i == axis else (0, 0) for i in range(4)])
            values = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1, axis).sum(-1)
        return values

    scale = k + alpha * sum_windows(x**2)
    if call.function == "normalize_response":
        return np.asarray(x * scale**-beta)
    dy = inputs["y"]
    return np.asarray(dy * scale**-beta - 2 * alpha * beta * x * sum_windows(dy * x * scale ** (-beta - 1)))


def _group_slices(count: int, inputs: int, outputs: int) -> Iterator[tuple[slice, slice]]:
    for i in range(count):
        yield tuple(slice(i * n // count, (i + 1) * n // count) for n in (inputs, outputs))
