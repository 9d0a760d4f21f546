// The weight gradient of 3x3 and 5x5 convolutions by Winograd's algorithm: the transpose of winograd.h with respect to
// the weight. Milliseconds beside the faster of oneDNN and weight_diff.h, batch 8: 64 to 64 at 56x56 1.6 and 3.9, 128
// to 128 at 28x28 1.3 and 3.5, 256 to 256 at 14x14 1.9 and 3.6; batch 16: 64 to 192 at 56x56 9.4 and 23.5.
//
// All threads transform a block of tiles of inputs and of diffs; oneDNN multiplies them, for each place of a tile one
// matrix (inputs, tiles) times one matrix (tiles, outputs), and adds the products to those of earlier blocks.

#ifndef CAFFEJAX_KERNELS_WINOGRAD_WEIGHT_DIFF_H_
#define CAFFEJAX_KERNELS_WINOGRAD_WEIGHT_DIFF_H_

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "winograd_training.h"

namespace caffejax {

CAFFEJAX_FOR_EACH_PROCESSOR
static void IntoDiffTile(Tiling tiling, const float* const* cells, const int64_t* steps, int64_t blocks, int64_t below,
                         float* to, int64_t stride, float* sums) {
  if (tiling.Side() == 4) TransformDiffTile<4, 2>(cells, steps, blocks, below, to, stride, sums);
  else if (tiling.results == 4) TransformDiffTile<6, 4>(cells, steps, blocks, below, to, stride, sums);
  else TransformDiffTile<6, 2>(cells, steps, blocks, below, to, stride, sums);
}

// Transforms the products for 16 outputs, (places, inputs, outputs) with `step` floats from place to place, to the
// weights (16, inputs, kernel, kernel).
template <int kSide, int kKernel>
CAFFEJAX_INLINE void TransformToWeights(const float* from, int64_t inputs, int64_t outputs, int64_t step, float* to) {
  constexpr int kCells = kKernel * kKernel;
  for (int64_t c = 0; c < inputs; ++c, from += outputs) {
    Lanes columns[kSide][kKernel], t[kSide], g[kKernel];
    for (int j = 0; j < kSide; ++j) {
      for (int i = 0; i < kSide; ++i) std::memcpy(&t[i], from + (kSide * i + j) * step, sizeof(Lanes));
      TransformKernelDiffs<kSide, kKernel>(t, columns[j]);
    }
    for (int i = 0; i < kKernel; ++i) {
      for (int j = 0; j < kSide; ++j) t[j] = columns[j][i];
      TransformKernelDiffs<kSide, kKernel>(t, g);
      for (int j = 0; j < kKernel; ++j) {
        for (int64_t k = 0; k < kBlock; ++k) to[(k * inputs + c) * kCells + i * kKernel + j] = g[j][k];
      }
    }
  }
}

CAFFEJAX_FOR_EACH_PROCESSOR
static void ToWeights(Tiling tiling, const float* from, int64_t inputs, int64_t outputs, int64_t step, float* to) {
  if (tiling.Side() == 4) TransformToWeights<4, 3>(from, inputs, outputs, step, to);
  else if (tiling.kernel == 3) TransformToWeights<6, 3>(from, inputs, outputs, step, to);
  else TransformToWeights<6, 5>(from, inputs, outputs, step, to);
}

class WinogradWeightDiff {
 public:
  // Returns the weight gradient for these shapes, or nothing if another algorithm computes it faster or has to compute
  // it.
  static std::unique_ptr<WinogradWeightDiff> Make(const Convolution& c) {
    auto shape = WinogradShape(c);
    if (!shape) return nullptr;
    auto tiling = Winograd::Fastest(*shape, c.weight.dimensions()[2], kCosts);
    if (!tiling) return nullptr;
    shape->tiling = *tiling;
    auto result = std::make_unique<WinogradWeightDiff>(*shape);
    return result->IsTuned() ? std::move(result) : nullptr;
  }

  explicit WinogradWeightDiff(const Winograd::Shape& shape) : s_(shape), tiling_(shape.tiling) {
    block_ = Block();
    int64_t matrices = tiling_.Places() * s_.groups;
    auto describe = [&](const dnnl::primitive_attr& attributes) {
      auto x = Strided({matrices, s_.inputs, block_}, {block_ * s_.inputs, 1, s_.inputs});
      return dnnl::matmul::primitive_desc(Engine(), x, Plain({matrices, block_, s_.outputs}),
                                          Plain({matrices, s_.inputs, s_.outputs}), attributes);
    };
    auto attributes = Attributes();
    pd_ = describe(attributes);
    multiply_ = dnnl::primitive(pd_.get());
    scratchpad_ = pd_.scratchpad_desc();
    if (block_ >= s_.Tiles()) return;
    dnnl::post_ops add;
    add.append_sum();
    attributes.set_post_ops(add);
    pd_ = describe(attributes);
    multiply_and_add_ = dnnl::primitive(pd_.get());
    if (pd_.scratchpad_desc().get_size() > scratchpad_.get_size()) scratchpad_ = pd_.scratchpad_desc();
  }

  bool IsTuned() const { return caffejax::IsTuned(pd_); }

  // Computes d_weight (outputs, inputs, kernel, kernel), and d_bias (outputs,) unless it is null.
  void Run(const float* x, const float* dy, float* d_weight, float* d_bias) const {
    Space space;
    memory inputs = space.Of(pd_.src_desc()), diffs = space.Of(pd_.weights_desc()), products = space.Of(pd_.dst_desc()),
           scratchpad = space.Of(scratchpad_);
    int threads = MaxThreads();
    int64_t outputs = s_.groups * s_.outputs;
    std::vector<float> sums(threads * outputs);
    auto floats = [](const memory& m) { return static_cast<float*>(m.get_data_handle()); };
    for (int64_t from = 0; from < s_.Tiles(); from += block_) {
      RunInParallel(threads, [&](int thread, int count) {
        for (int64_t row = block_ * thread / count; row < block_ * (thread + 1) / count; ++row) {
          EnterRow(x, dy, from + row, row, floats(inputs), floats(diffs), &sums[thread * outputs]);
        }
      });
      const dnnl::primitive& multiply = from ? multiply_and_add_ : multiply_;
      multiply.execute(Stream(), {{DNNL_ARG_SRC, inputs},
                                  {DNNL_ARG_WEIGHTS, diffs},
                                  {DNNL_ARG_DST, products},
                                  {DNNL_ARG_SCRATCHPAD, scratchpad}});
      Stream().wait();
    }
    int64_t blocks = s_.outputs / kBlock, all = s_.groups * blocks;
    RunInParallel(threads, [&](int thread, int count) {
      for (int64_t i = all * thread / count; i < all * (thread + 1) / count; ++i) {
        const float* matrix = floats(products) + i / blocks * s_.inputs * s_.outputs + i % blocks * kBlock;
        int64_t kernel = tiling_.kernel;
        ToWeights(tiling_, matrix, s_.inputs, s_.outputs, s_.groups * s_.inputs * s_.outputs,
                  d_weight + i * kBlock * s_.inputs * kernel * kernel);
      }
    });
    for (int64_t k = 0; d_bias && k < outputs; ++k) {
      d_bias[k] = 0;
      for (int thread = 0; thread < threads; ++thread) d_bias[k] += sums[thread * outputs + k];
    }
  }

 private:
  // as measured beside oneDNN's weight gradients and weight_diff.h
  static constexpr Winograd::Costs kCosts{30, 80, 0, 1e7, Winograd::kNever};

  // The number of tiles in a block: all matrices of tiles have the size of the products, or fit in the cache.
  int64_t Block() const {
    constexpr int64_t kCache = (3 << 20) / sizeof(float);
    int64_t channels = s_.inputs + s_.outputs;
    int64_t in_cache = kCache / (tiling_.Places() * s_.groups * channels);
    int64_t most = std::max<int64_t>({in_cache, s_.inputs * s_.outputs / channels, 16});
    int64_t count = (s_.Tiles() + most - 1) / most;
    return ((s_.Tiles() + count - 1) / count) | 1;
  }

  // Transforms a tile of the input and of the diffs. Rows after the last tile are zeros.
  void EnterRow(const float* x, const float* dy, int64_t tile, int64_t row, float* inputs, float* diffs,
                float* sums) const {
    if (tile >= s_.Tiles()) {
      for (int64_t matrix = 0; matrix < tiling_.Places() * s_.groups; ++matrix) {
        std::fill_n(inputs + (matrix * block_ + row) * s_.inputs, s_.inputs, 0.0f);
        std::fill_n(diffs + (matrix * block_ + row) * s_.outputs, s_.outputs, 0.0f);
      }
      return;
    }
    s_.Enter(x, tile, inputs, row, block_);
    auto corner = s_.CornerOf(tile);
    Pixels pixels(dy + corner.image * s_.y.image, s_.y, corner.row, corner.column, tiling_.results, s_.dilation);
    int64_t blocks = s_.outputs / kBlock;
    for (int64_t group = 0; group < s_.groups; ++group) {
      if (group > 0) pixels.Skip(blocks);
      float* to = diffs + (group * block_ + row) * s_.outputs;
      IntoDiffTile(tiling_, pixels.cells, pixels.steps, blocks, tiling_.results * s_.y.width * s_.y.pixel, to,
                   s_.groups * block_ * s_.outputs, sums + group * s_.outputs);
    }
  }

  Winograd::Shape s_;
  Tiling tiling_;
  int64_t block_;
  dnnl::matmul::primitive_desc pd_;
  memory::desc scratchpad_;
  dnnl::primitive multiply_, multiply_and_add_;
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_WINOGRAD_WEIGHT_DIFF_H_
