"""Build randomly mutated programs, and print how many were valid: `python mutated_programs.py COUNT`."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from caffejax.cpu.kernels import onednn_program
from caffejax.cpu.kernels.onednn_program import Operation, Program, encode

PROGRAMS = [
    """argument dims 1 16 6 6
weight dims 16 16 3 3
weight dims 16
convolution in 0 weight 0 bias 1 stride 1 1 dilation 1 1 low 1 1 high 1 1 groups 1 out 1 16 6 6
result value 1""",
    """argument dims 1 16 6 6
argument dims 1 20 6 6
weight dims 16
concat in 0 1 0 axis 1 out 1 52 6 6
lrn in 2 within 0 size 5 alpha 0.1 beta 0.75 k 1.0 out 1 52 6 6
max in 3 kernel 2 2 stride 2 2 low 0 0 high 0 0 out 1 52 3 3
slice in 4 from 0 16 0 0 out 1 16 3 3
apply in 5 out 1 16 3 3
+times weight 0
+relu a 0.0 b 0.0
+plus value 5
softmax in 6 axis 1 out 1 16 3 3
shuffle in 7 size 4 out 1 16 3 3
permute in 8 order 0 2 3 1 out 1 3 3 16
result value 2
result value 9""",
    """argument dims 2 8 5 5
weight dims 8 4 2 2
weight dims 10 400
weight dims 10
deconvolution in 0 weight 0 stride 2 2 dilation 1 1 low 0 0 high 0 0 groups 2 out 2 8 10 10
mean in 1 kernel 2 2 stride 2 2 low 0 0 high 0 0 out 2 8 5 5
reshape in 2 out 2 200
reshape in 1 out 2 800
concat in 3 3 axis 1 out 2 400
dense in 5 weight 1 bias 2 out 2 10
+logistic a 0.0 b 0.0
apply in 6 out 2 10
+maximum weight 2
+prelu weight 2
result value 7""",
]
NUMBERS = [
    "0",
    "1",
    "-1",
    "2",
    "3",
    "5",
    "7",
    "16",
    "20",
    "4294967296",
    "9223372036854775807",
    "1e300",
    "nan",
    "0.5",
    "-inf",
]


def parse(text: str) -> Program:
    """Parse a program.

    Each line is a statement: a word, then fields, each a name and numbers. `argument dims ...` and `weight dims ...`
    come first, then operations, then `result value i`. A statement that begins with + is applied to the result of the
    preceding operation.

    Raises:
        ValueError: if the text is not a program.
    """
    shapes: dict[str, list[tuple[int, ...]]] = {"argument": [], "weight": []}
    operations: list[Operation] = []
    results: list[int] = []
    for line in text.split("\n"):
        word, *tokens = line.split() or [""]
        fields: dict[str, Any] = {}
        for token in tokens:
            if token.isalpha() and token not in ("nan", "inf"):
                numbers = fields[token] = []
            elif fields:
                numbers.append(parse_number(token))
            else:
                raise ValueError(f"{token} belongs to no field")
        if word in shapes:
            shapes[word].append(tuple(fields.get("dims", ())))
        elif word == "result":
            results += fields.get("value", ())
        elif word.startswith("+"):
            if not operations:
                raise ValueError(f"{word} comes before the first operation")
            operations[-1].epilogue.append((word[1:], fields))
        else:
            out = tuple(fields.pop("out", ()))
            operations.append(Operation(word, fields, out))
    result_numbers = [int(r) if abs(r) < 1e9 else 10**9 for r in results]
    return encode(shapes["argument"], shapes["weight"], operations, result_numbers)


def parse_number(text: str) -> Any:
    number = float(text)
    return int(number) if abs(number) < 1e15 and number.is_integer() else number


def mutate_numbers(program: Program, draw: random.Random) -> Program:
    """Return the program with some of its numbers replaced, removed or repeated."""
    code = program.code.tolist()
    for _ in range(draw.choice([1, 1, 2, 5])):
        index = draw.randrange(len(code))
        match draw.randrange(3):
            case 0:
                code[index] = float(draw.choice(NUMBERS))
            case 1:
                del code[index]
            case _:
                code.insert(index, code[draw.randrange(len(code))])
    return replace(program, code=np.array(code, np.float64))


def mutate_text(text: str, draw: random.Random) -> str:
    """Return the text with words or lines added, removed, moved or replaced."""
    lines = [line.split() for line in text.split("\n")]
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        line = draw.choice(lines)
        index = draw.randrange(len(line)) if line else 0
        word = draw.choice([*NUMBERS, draw.choice(draw.choice(lines) or ["in"])])
        match draw.randrange(6):
            case 0:
                line[index : index + 1] = [word]
            case 1:
                del line[index : index + 1]
            case 2:
                line.insert(index, word)
            case 3:
                lines.insert(draw.randrange(len(lines)), list(draw.choice(lines)))
            case 4:
                lines.remove(line)
            case _:
                numbers = [i for i, w in enumerate(line) if w.lstrip("-").isdigit()]
                if numbers:
                    line[draw.choice(numbers)] = draw.choice(NUMBERS)
        lines = lines or [["result"]]
    return "\n".join(map(" ".join, lines))


def main(count: int) -> None:
    """Build `count` mutated programs."""
    draw, num_valid, num_invalid = random.Random(0), 0, 0
    for program in PROGRAMS:
        onednn_program.Executable(parse(program))
    for i in range(count):
        text = mutate_text(draw.choice(PROGRAMS), draw)
        print(text, file=sys.stderr, flush=True)  # the last one is the one that crashed
        try:
            program = parse(text)
            if i % 4 == 0:
                program = mutate_numbers(program, draw)
                print(program.code.tolist(), file=sys.stderr, flush=True)
            onednn_program.Executable(program)
            num_valid += 1
        except ValueError:
            num_invalid += 1
    print(num_valid, num_invalid)


if __name__ == "__main__":
    main(int(sys.argv[1]))
