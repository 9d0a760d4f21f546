"""Build randomly mutated programs, and print how many were valid: `python mutated_programs.py COUNT`."""

from __future__ import annotations

import random
import sys
from itertools import takewhile

from caffejax.cpu.kernels import onednn_program
from caffejax.cpu.kernels.onednn_program import Program

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
    "1e",
    "+",
]


def make_program(text: str) -> Program:
    """Return the program that a text is. Its shapes are found by name, and are not those of a text with mistakes."""
    lines = [line.split() for line in text.split("\n")]
    argument_shapes, weight_shapes = (
        [find_shape(x, "dims") for x in lines if x[:1] == [w]] for w in ("argument", "weight")
    )
    shapes = [*argument_shapes, *(find_shape(x, "out") for x in lines if "out" in x)]
    results = [int(x[2]) for x in lines if x[:2] == ["result", "value"] and x[2:] and x[2].isdigit()]
    result_shapes = tuple(shapes[i] for i in results if i < len(shapes))
    return Program(text, tuple(argument_shapes), tuple(weight_shapes), result_shapes)


def find_shape(words: list[str], field: str) -> tuple[int, ...]:
    numbers = words[words.index(field) + 1 :] if field in words else []
    return tuple(int(n) for n in takewhile(str.isdigit, numbers))


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
        onednn_program.Executable(make_program(program))
    for _ in range(count):
        text = mutate_text(draw.choice(PROGRAMS), draw)
        print(text, file=sys.stderr, flush=True)  # the last one is the one that crashed
        try:
            onednn_program.Executable(make_program(text))
            num_valid += 1
        except ValueError:
            num_invalid += 1
    print(num_valid, num_invalid)


if __name__ == "__main__":
    main(int(sys.argv[1]))
