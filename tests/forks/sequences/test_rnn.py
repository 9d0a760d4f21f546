"""Tests of RNN."""

from layer_suite import BATCH, fork_properties, layer_case

RNN_PARAM = """recurrent_param { num_output: 4 weight_filler { type: "uniform" min: -1 max: 1 } }
  rnn_param { recurrent_nonlinearity: "Sigmoid" output_nonlinearity: "TanH" }"""

test_properties = fork_properties(
    layer_case("RNN", RNN_PARAM, (3, BATCH, 4), (3, BATCH), name="of_nonlinearities"),
)
