// Maxima over rectangles of feature maps, for ROIPooling on CPUs. XLA reads them from tables of the maxima over all
// rectangles of 2**a x 2**b cells, because it has no loops of different lengths: the bins of 300 regions of 72x240
// cells with 512 channels take 1500 ms, here 60.

#ifndef CAFFEJAX_KERNELS_RECTANGLE_MAXIMA_H_
#define CAFFEJAX_KERNELS_RECTANGLE_MAXIMA_H_

#include <algorithm>
#include <vector>

#include "onednn_shapes.h"
#include "threads.h"

namespace caffejax {

using Integers32 = xla::ffi::Buffer<xla::ffi::S32>;

// x (batch, height, width, channels), and rectangles (count, 5): the image, the first row, the row after the last, the
// first column, the column after the last. Parts of rectangles beyond the image do not count.
struct Rectangles {
  Array x;
  Integers32 rectangles;

  int64_t Count() const { return rectangles.dimensions()[0]; }
  int64_t Channels() const { return x.dimensions()[3]; }
};

inline void Check(const Rectangles& r, Numbers result) {
  CheckArray("x", r.x, 4);
  Numbers rectangles = r.rectangles.dimensions();
  Require(rectangles.size() == 2 && rectangles[1] == 5, "rectangles ", rectangles, " are not (count, 5)");
  Require(result.size() == 2 && result[0] == rectangles[0] && result[1] == r.Channels(), "the result ", result,
          " is not of the rectangles ", rectangles, " and the channels of x ", r.x);
  Require(r.x.dimensions()[1] * r.x.dimensions()[2] <= kLargest, "x ", r.x, " is too large");
}

// The cells of a rectangle: the first, and the distance between rows.
struct Cells {
  const float* first;
  int64_t rows, columns, channels, row_step, place;  // the place of the first cell: row * width + column
};

// NaN is larger than all numbers, as in XLA's maximum.
CAFFEJAX_FOR_EACH_PROCESSOR
static void SelectMaxima(const Cells& cells, float* maxima) {
  std::copy(cells.first, cells.first + cells.channels, maxima);
  for (int64_t row = 0; row < cells.rows; ++row) {
    const float* cell = cells.first + row * cells.row_step * cells.channels;
    for (int64_t column = 0; column < cells.columns; ++column, cell += cells.channels) {
      for (int64_t c = 0; c < cells.channels; ++c) {
        maxima[c] = cell[c] > maxima[c] || cell[c] != cell[c] ? cell[c] : maxima[c];
      }
    }
  }
}

CAFFEJAX_FOR_EACH_PROCESSOR
static void SelectPlaces(const Cells& cells, float* maxima, int32_t* places) {
  std::copy(cells.first, cells.first + cells.channels, maxima);
  std::fill(places, places + cells.channels, static_cast<int32_t>(cells.place));
  for (int64_t row = 0; row < cells.rows; ++row) {
    const float* cell = cells.first + row * cells.row_step * cells.channels;
    for (int64_t column = 0; column < cells.columns; ++column, cell += cells.channels) {
      auto place = static_cast<int32_t>(cells.place + row * cells.row_step + column);
      for (int64_t c = 0; c < cells.channels; ++c) {
        places[c] = cell[c] > maxima[c] ? place : places[c];
        maxima[c] = cell[c] > maxima[c] ? cell[c] : maxima[c];
      }
    }
  }
}

// Calls `select(rectangle, cells)` for each rectangle, in several threads. The number of cells may be 0.
template <typename Select>
void ForEachRectangle(const Rectangles& r, Select select) {
  Numbers x = r.x.dimensions();
  int64_t batch = x[0], height = x[1], width = x[2], channels = x[3], count = r.Count();
  if (batch * height * width == 0) return;
  RunInParallel(MaxThreads(), [&](int thread, int threads) {
    for (int64_t i = count * thread / threads; i < count * (thread + 1) / threads; ++i) {
      const int32_t* at = r.rectangles.typed_data() + i * 5;
      int64_t image = std::clamp<int64_t>(at[0], 0, batch - 1);
      int64_t row = std::clamp<int64_t>(at[1], 0, height), end_row = std::clamp<int64_t>(at[2], row, height);
      int64_t column = std::clamp<int64_t>(at[3], 0, width), end_column = std::clamp<int64_t>(at[4], column, width);
      bool is_empty = row == end_row || column == end_column;
      int64_t place = is_empty ? 0 : row * width + column;
      const float* first = r.x.typed_data() + (image * height * width + place) * channels;
      select(i, Cells{first, is_empty ? 0 : end_row - row, is_empty ? 0 : end_column - column, channels, width, place});
    }
  });
}

// Writes the maxima (count, channels), which are 0 in empty rectangles.
inline void WriteMaxima(const Rectangles& r, float* maxima) {
  ForEachRectangle(r, [&](int64_t i, const Cells& cells) {
    float* to = maxima + i * cells.channels;
    if (cells.rows > 0) SelectMaxima(cells, to);
    else std::fill(to, to + cells.channels, 0.0f);
  });
}

// Writes the places of the first maxima (count, channels), row * width + column, which are 0 in empty rectangles.
inline void WritePlaces(const Rectangles& r, int32_t* places) {
  ForEachRectangle(r, [&](int64_t i, const Cells& cells) {
    thread_local std::vector<float> maxima;
    maxima.resize(cells.channels);
    SelectPlaces(cells, maxima.data(), places + i * cells.channels);
  });
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_RECTANGLE_MAXIMA_H_
