"""Train Caffe's LSTM on a text letter by letter, and let it write the text."""

import jax
import jax.numpy as jnp
import numpy as np

import caffejax

TEXT = "the quick brown fox jumps over the lazy dog. pack my box with five dozen liquor jugs. "
LETTERS = sorted(set(TEXT))
STEPS, STREAMS = 20, 8

NET = f"""
layer {{ name: "text" type: "Input" top: "letter" top: "cont" top: "next"
         input_param {{ shape {{ dim: {STEPS} dim: {STREAMS} }} shape {{ dim: {STEPS} dim: {STREAMS} }}
                        shape {{ dim: {STEPS} dim: {STREAMS} }} }} }}
layer {{ name: "embed" type: "Embed" bottom: "letter" top: "embed"
         embed_param {{ input_dim: {len(LETTERS)} num_output: 16 weight_filler {{ type: "gaussian" std: 0.5 }} }} }}
layer {{ name: "lstm" type: "LSTM" bottom: "embed" bottom: "cont" top: "lstm"
         recurrent_param {{ num_output: 64 weight_filler {{ type: "xavier" }} bias_filler {{ type: "constant" }} }} }}
layer {{ name: "scores" type: "InnerProduct" bottom: "lstm" top: "scores"
         inner_product_param {{ num_output: {len(LETTERS)} axis: 2 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "scores" bottom: "next" top: "loss"
         softmax_param {{ axis: 2 }} }}
"""
with open("text.prototxt", "w") as file:
    file.write(NET)

letter_indices = np.array([LETTERS.index(letter) for letter in TEXT])


def draw_batches(epoch):
    """Yield consecutive parts of streams that begin at random positions of the text; `cont` is 0 at the beginning."""
    starts = np.random.default_rng(epoch).integers(len(TEXT), size=STREAMS)
    for i in range(4):
        positions = starts + np.arange(i * STEPS, (i + 1) * STEPS)[:, None]
        cont = np.ones((STEPS, STREAMS))
        cont[0] = i > 0
        letters, next_letters = (letter_indices[(positions + i) % len(TEXT)] for i in (0, 1))
        yield {"letter": letters, "cont": cont, "next": next_letters}


solver = caffejax.Solver(
    'net: "text.prototxt" base_lr: 0.01 type: "Adam" lr_policy: "fixed" max_iter: 400 random_seed: 1 '
    'snapshot_prefix: "text"',
    data=draw_batches,
)
solver.step(400)
print(f"loss {solver.smoothed_loss:.2f}")

# write: read the last letters, take the likeliest next one, go on
net = caffejax.Net(NET.replace(f"dim: {STREAMS} ", "dim: 1 "), "TEST")
_, state = net.init(jax.random.key(0))
params = solver.variables.params


@jax.jit
def predict_letters(letters):
    """Return the most probable letter after each of these letters."""
    cont = jnp.ones((STEPS, 1)).at[0].set(0)
    blobs, _ = net.apply(params, state, {"letter": letters[:, None], "cont": cont, "next": cont}, blobs=["scores"])
    return blobs["scores"][:, 0].argmax(axis=-1)


generated = list(letter_indices[:STEPS])
for _ in range(40):
    generated.append(int(predict_letters(jnp.array(generated[-STEPS:], jnp.float32))[-1]))
print("".join(LETTERS[n] for n in generated))
