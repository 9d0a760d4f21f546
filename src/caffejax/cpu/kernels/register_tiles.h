// The product of a line of pixels and a panel of weights, for processors with AVX-512. The sums of 6x64, 8x48, 8x32 or
// 8x16 results stay in registers while the products of all inputs are added.

#ifndef CAFFEJAX_KERNELS_REGISTER_TILES_H_
#define CAFFEJAX_KERNELS_REGISTER_TILES_H_

#include <algorithm>
#include <utility>

#include <immintrin.h>

#include "planes.h"

namespace caffejax {

inline constexpr int64_t kTileLanes = 16, kTileVectors = 4;
inline constexpr int64_t kTilePixels[kTileVectors] = {8, 8, 8, 6};  // by the number of vectors

// A panel of weights (inputs, vectors * kTileLanes) for the outputs from `first` on, and their biases or null. The last
// vector has `lanes` outputs.
struct WeightPanel {
  const float *weight, *bias;
  int64_t first, vectors, lanes;

  // Returns the lanes of a vector that have outputs.
  __mmask16 Mask(int64_t vector) const {
    return static_cast<__mmask16>(vector + 1 < vectors ? 0xffff : (1 << lanes) - 1);
  }
};

// Reads inputs x and writes, or with `add` adds to, outputs y. The inputs of a pixel are `taps` parts of `length`
// floats.
struct TileProduct {
  int64_t pixel_step, taps, tap_step, length;  // floats from pixel to pixel of x, and from part to part
  int64_t y_step;  // floats from pixel to pixel of y
  bool add, relu;

  // Computes `kPixels` pixels. Unless `next` is null, fetches as many pixels from there.
  template <int kPixels, int kWidth>
  CAFFEJAX_AVX512 void Run(const float* x, const float* next, const WeightPanel& panel, float* y) const {
    __m512 total[kPixels][kWidth];
#pragma GCC unroll 8
    for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; ++v) {
        total[p][v] = panel.bias ? _mm512_maskz_loadu_ps(panel.Mask(v), panel.bias + v * kTileLanes)
                                 : _mm512_setzero_ps();
      }
    }
    const float* weight = panel.weight;
    for (int64_t tap = 0; tap < taps; ++tap, x += tap_step) {
      for (int64_t start = 0; start < length; start += kTileLanes) {
        for (int p = 0; next && p < kPixels; ++p) _mm_prefetch(next + p * pixel_step + start, _MM_HINT_T1);
        for (int64_t i = start; i < std::min(start + kTileLanes, length); ++i, weight += kWidth * kTileLanes) {
          __m512 weights[kWidth];
#pragma GCC unroll 4
          for (int v = 0; v < kWidth; ++v) weights[v] = _mm512_loadu_ps(weight + v * kTileLanes);
#pragma GCC unroll 8
          for (int p = 0; p < kPixels; ++p) {
            __m512 value = _mm512_set1_ps(x[p * pixel_step + i]);
#pragma GCC unroll 4
            for (int v = 0; v < kWidth; ++v) total[p][v] = _mm512_fmadd_ps(value, weights[v], total[p][v]);
          }
        }
      }
    }
    __m512 least = relu ? _mm512_setzero_ps() : _mm512_set1_ps(-__builtin_inff());
#pragma GCC unroll 8
    for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; ++v) {
        __mmask16 mask = panel.Mask(v);
        float* to = y + p * y_step + v * kTileLanes;
        if (add) total[p][v] = _mm512_add_ps(total[p][v], _mm512_maskz_loadu_ps(mask, to));
        _mm512_mask_storeu_ps(to, mask, _mm512_max_ps(least, total[p][v]));  // in this order, it keeps NaN
      }
    }
  }

  // Computes a line of pixels, whose first output is written to `y`. `fetch(tile, part)` returns the address of the
  // pixels that are fetched during a tile, which computes this part of the line, or null.
  template <typename Fetch>
  void RunLine(int64_t pixels, const float* x, const WeightPanel& panel, float* y, Fetch fetch) const {
    int64_t tiles = (pixels + kTilePixels[panel.vectors - 1] - 1) / kTilePixels[panel.vectors - 1];
    for (int64_t tile = 0; tile < tiles; ++tile) {
      Range part = Range{0, pixels}.Part(tile, tiles);
      Tile run = Select(part.size(), panel.vectors);
      (this->*run)(x + part.start * pixel_step, fetch(tile, part), panel, y + panel.first + part.start * y_step);
    }
  }

 private:
  using Tile = void (TileProduct::*)(const float*, const float*, const WeightPanel&, float*) const;

  template <int kWidth, int... kCounts>
  static Tile SelectOfWidth(std::integer_sequence<int, kCounts...>, int64_t pixels) {
    static constexpr Tile tiles[] = {&TileProduct::Run<kCounts + 1, kWidth>...};
    return tiles[pixels - 1];
  }

  // Returns the function for a number of pixels and of vectors of outputs.
  static Tile Select(int64_t pixels, int64_t width) {
    switch (width) {
      case 1:
        return SelectOfWidth<1>(std::make_integer_sequence<int, kTilePixels[0]>(), pixels);
      case 2:
        return SelectOfWidth<2>(std::make_integer_sequence<int, kTilePixels[1]>(), pixels);
      case 3:
        return SelectOfWidth<3>(std::make_integer_sequence<int, kTilePixels[2]>(), pixels);
      default:
        return SelectOfWidth<4>(std::make_integer_sequence<int, kTilePixels[3]>(), pixels);
    }
  }
};

// Outputs in vectors of kTileLanes, which are divided into nearly equal panels of at most kTileVectors.
struct Panels {
  int64_t outputs;

  int64_t Vectors() const { return (outputs + kTileLanes - 1) / kTileLanes; }

  int64_t Count() const { return (Vectors() + kTileVectors - 1) / kTileVectors; }

  // Returns the vectors of some panels.
  Range VectorsOf(Range panels) const {
    Range all{0, Vectors()};
    return {all.Part(panels.start, Count()).start, all.Part(panels.end, Count()).start};
  }

  Range OutputsOf(Range vectors) const {
    return {vectors.start * kTileLanes, std::min(vectors.end * kTileLanes, outputs)};
  }

  // Returns the number of outputs in the last of some vectors.
  int64_t LanesOf(Range vectors) const { return std::min(kTileLanes, outputs - (vectors.end - 1) * kTileLanes); }

  // Returns a panel of weights of which `packed` has the panels from `first_packed` on. `bias` may be null.
  WeightPanel Panel(int64_t panel, const float* packed, int64_t first_packed, int64_t inputs, const float* bias) const {
    Range vectors = VectorsOf({panel, panel + 1});
    int64_t first = vectors.start * kTileLanes, skipped = first - VectorsOf({first_packed, panel}).start * kTileLanes;
    return {packed + skipped * inputs, bias ? bias + first : nullptr, first, vectors.size(), LanesOf(vectors)};
  }
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_REGISTER_TILES_H_
