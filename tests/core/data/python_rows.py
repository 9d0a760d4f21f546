"""A data layer in Python whose batches are consecutive rows, for the tests of shards."""

import numpy as np


class Rows:
    """Gives batches of 3 rows; row n of all is [n, -n]. Says where it is."""

    num_batches = 0  # batches, by this instance

    def setup(self, bottom, top):
        self.row = 0

    def reshape(self, bottom, top):
        top[0].reshape(3, 2)
        top[1].reshape(3)

    def forward(self, bottom, top):
        rows = np.arange(self.row, self.row + 3)
        top[0].data[...] = np.stack([rows, -rows], axis=1)
        top[1].data[...] = rows % 13
        self.row += 3
        self.num_batches += 1

    def get_state(self):
        return {"row": self.row}

    def set_state(self, state):
        self.row = state["row"]
