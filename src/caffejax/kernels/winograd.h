// 3x3 convolutions by Winograd's F(2x2, 3x3), which needs 16 instead of 36 multiplications for 2x2 results. At batch
// size 1 it makes ResNet-50 1.16, GoogLeNet 1.24 and SqueezeNet 1.16 times as fast (docs/development/performance.md).
// oneDNN has no Winograd convolutions for AVX-512.
//
// This code transforms tiles, by additions only (winograd_tiles.h). oneDNN computes the products: 16 matrices
// (tiles, inputs) times (inputs, outputs) for each group. Each thread processes tiles in blocks that stay in its cache.

#ifndef CAFFEJAX_KERNELS_WINOGRAD_H_
#define CAFFEJAX_KERNELS_WINOGRAD_H_

#include <algorithm>
#include <optional>
#include <vector>

#include "execution_plan.h"
#include "threads.h"
#include "winograd_tiles.h"

namespace caffejax {

// Strides of images in floats: from image to image, from one block of channels to the next, from pixel to pixel.
struct Image {
  int64_t height, width, image, block, pixel;

  // Returns the strides of an array whose channels are in blocks or last in memory, or nothing for other layouts.
  static std::optional<Image> Of(const memory::desc& layout) {
    Dims d = layout.get_dims();
    if (d.size() != 4 || d[1] % kBlock) return std::nullopt;
    int64_t image = d[1] * d[2] * d[3];
    if (layout == ByBlocks(d)) return Image{d[2], d[3], image, d[2] * d[3] * kBlock, kBlock};
    if (layout == ByPixels(d)) return Image{d[2], d[3], image, kBlock, d[1]};
    return std::nullopt;
  }
};

class Winograd : public Executable {
 public:
  struct Shape {
    int64_t batch, groups, inputs, outputs;  // channels of a group, in full blocks
    Image x, y;
    int64_t top, left;                       // padding
    bool relu = false;
    float slope = 0;
  };

  // Returns whether a model predicts that Winograd's algorithm is faster than the plain convolution. The model counts the
  // multiplications of both, and adds measured costs: of transforming each number of a tile, and for each kernel of an
  // input and an output, of reading the larger weights.
  static bool IsWorth(const Shape& shape, double tile_cost = 320, double kernel_cost = 170) {
    if (shape.inputs % kBlock || shape.outputs % kBlock) return false;
    double pairs = static_cast<double>(shape.inputs) * shape.outputs, pixels = shape.batch * shape.y.height * shape.y.width;
    double tiles = shape.batch * ((shape.y.height + 1) / 2) * ((shape.y.width + 1) / 2);
    double plain = 9 * pairs * pixels, products = 16 * pairs * tiles;
    return plain > products + tile_cost * (shape.inputs + shape.outputs) * tiles + kernel_cost * pairs;
  }

  explicit Winograd(const Shape& shape)
      : s_(shape), rows_((shape.y.height + 1) / 2), columns_((shape.y.width + 1) / 2), threads_(MaxThreads()) {
    block_ = Block();
    ScopedSingleThread alone;
    Dims x{16 * s_.groups, block_, s_.inputs}, w{x[0], s_.inputs, s_.outputs}, y{x[0], block_, s_.outputs};
    pd_ = dnnl::matmul::primitive_desc(Engine(), Plain(x), AnyOrder(w), Plain(y), Attributes(false));
    multiply_ = dnnl::primitive(pd_.get());
    products_ = AlignUp(pd_.src_desc().get_size());
    scratchpad_ = products_ + AlignUp(pd_.dst_desc().get_size());
    thread_bytes_ = scratchpad_ + AlignUp(pd_.scratchpad_desc().get_size());
  }

  bool IsTuned() const { return caffejax::IsTuned(pd_); }

  memory::desc Weight() const { return pd_.weights_desc(); }

  // Bytes of the intermediate matrices.
  memory::desc Scratchpad() const {
    return memory::desc({static_cast<int64_t>(thread_bytes_ * threads_)}, memory::data_type::u8, memory::format_tag::a);
  }

  void Run(const std::vector<dnnl_exec_arg_t>& operands) const override {
    auto at = [&](int name) {
      void* handle = nullptr;
      for (const auto& operand : operands) {
        if (operand.arg == name) dnnl_memory_get_data_handle(operand.memory, &handle);
      }
      return static_cast<char*>(handle);
    };
    auto floats = [&](int name) { return reinterpret_cast<float*>(at(name)); };
    Run(floats(DNNL_ARG_SRC), floats(DNNL_ARG_WEIGHTS), floats(DNNL_ARG_BIAS), floats(DNNL_ARG_SRC_1),
        floats(DNNL_ARG_DST), at(DNNL_ARG_SCRATCHPAD));
  }

  // `bias` and `added` may be null.
  void Run(const float* x, float* weight, const float* bias, const float* added, float* y, char* scratchpad) const {
    Arrays arrays{x, y, bias, added};
    RunInParallel(threads_, [&](int thread, int threads) {
      char* scratch = scratchpad + thread * thread_bytes_;
      memory tiles(pd_.src_desc(), Engine(), scratch), w(pd_.weights_desc(), Engine(), weight),
          results(pd_.dst_desc(), Engine(), scratch + products_),
          primitive_scratch(pd_.scratchpad_desc(), Engine(), scratch + scratchpad_);
      for (int64_t from = thread * block_; from < Tiles(); from += threads * block_) {
        int64_t to = std::min(from + block_, Tiles());
        auto inputs = reinterpret_cast<float*>(scratch);
        for (int64_t tile = from; tile < to; ++tile) Enter(arrays, tile, inputs, tile - from);
        multiply_.execute(Stream(), {{DNNL_ARG_SRC, tiles}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, results},
                                     {DNNL_ARG_SCRATCHPAD, primitive_scratch}});
        auto products = reinterpret_cast<float*>(scratch + products_);
        for (int64_t tile = from; tile < to; ++tile) Leave(arrays, tile, products, tile - from);
      }
    });
  }

 private:
  struct Arrays {
    const float* x;
    float* y;
    const float *bias, *added;
  };

  int64_t Tiles() const { return s_.batch * rows_ * columns_; }

  // The number of tiles in a block. A block has as many tiles as fit in the cache, or more, until they take more memory
  // than the weights, but there is at least one block for each thread.
  int64_t Block() const {
    constexpr int64_t kCache = (768 << 10) / sizeof(float);
    int64_t channels = s_.inputs + s_.outputs;
    int64_t most = std::max(kCache / (16 * s_.groups * channels), s_.inputs * s_.outputs / channels);
    int64_t count = (Tiles() + most - 1) / std::max<int64_t>(most, 1);
    count = (count + threads_ - 1) / threads_ * threads_;
    return ((Tiles() + count - 1) / count) | 1;  // odd, so that the 16 matrices begin at different positions in the cache
  }

  // Transforms a tile and writes it to row `row` of the 16 matrices.
  void Enter(const Arrays& arrays, int64_t tile, float* matrices, int64_t row) const {
    static constexpr float kZeros[kBlock] = {};
    int64_t image = tile / (rows_ * columns_);
    int64_t top = tile / columns_ % rows_ * 2 - s_.top, left = tile % columns_ * 2 - s_.left;
    const float *cells[16], *x = arrays.x + image * s_.x.image;
    int64_t steps[16];
    for (int i = 0; i < 16; ++i) {
      int64_t r = top + i / 4, c = left + i % 4;
      bool inside = 0 <= r && r < s_.x.height && 0 <= c && c < s_.x.width;
      cells[i] = inside ? x + (r * s_.x.width + c) * s_.x.pixel : kZeros;
      steps[i] = inside ? s_.x.block : 0;
    }
    for (int64_t group = 0; group < s_.groups; ++group) {
      float* to = matrices + (group * block_ + row) * s_.inputs;
      IntoTile(cells, steps, s_.inputs / kBlock, to, s_.groups * block_ * s_.inputs);
      for (int i = 0; i < 16; ++i) cells[i] += steps[i] * (s_.inputs / kBlock);
    }
  }

  // Transforms row `row` of the 16 matrices to the results of a tile.
  void Leave(const Arrays& arrays, int64_t tile, const float* matrices, int64_t row) const {
    int64_t image = tile / (rows_ * columns_), top = tile / columns_ % rows_ * 2, left = tile % columns_ * 2;
    float beyond[kBlock] = {}, *cells[4], *y = arrays.y + image * s_.y.image;
    const float *added[4], *other = arrays.added + (arrays.added ? image * s_.y.image : 0);
    int64_t steps[4];
    for (int i = 0; i < 4; ++i) {
      int64_t r = top + i / 2, c = left + i % 2, at = (r * s_.y.width + c) * s_.y.pixel;
      bool inside = r < s_.y.height && c < s_.y.width;
      cells[i] = inside ? y + at : beyond;
      added[i] = inside ? other + at : beyond;
      steps[i] = inside ? s_.y.block : 0;
    }
    Finish finish{arrays.bias, arrays.added ? added : nullptr, s_.relu, s_.slope};
    int64_t blocks = s_.outputs / kBlock;
    for (int64_t group = 0; group < s_.groups; ++group) {
      const float* from = matrices + (group * block_ + row) * s_.outputs;
      FromTile(from, s_.groups * block_ * s_.outputs, blocks, finish, cells, steps);
      if (finish.bias) finish.bias += s_.outputs;
      for (int i = 0; i < 4; ++i) cells[i] += steps[i] * blocks, added[i] += steps[i] * blocks;
    }
  }

  Shape s_;
  int64_t rows_, columns_, block_;
  int threads_;
  dnnl::matmul::primitive_desc pd_;
  dnnl::primitive multiply_;
  // for each thread: the offsets of its products and of oneDNN's scratchpad, and its size in bytes
  size_t products_, scratchpad_, thread_bytes_;
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_WINOGRAD_H_
