// Convolutions of 3x3 and 5x5 by Winograd's algorithm. For a result, F(4x4, 3x3) needs 2.25 multiplications instead of
// 9, F(2x2, 3x3) 4, and F(2x2, 5x5) 9 instead of 25. oneDNN has no Winograd convolutions for AVX-512. Frozen nets with
// the larger tiles in place of F(2x2, 3x3) alone: GoogLeNet 80 instead of 101 ms for 16 images, CaffeNet 69 instead of
// 85 for 32, ResNet-50 99 instead of 112 for 8. A dilated convolution of 512 to 512 channels at 64x64 takes 56 instead
// of 180 ms on an older processor.
//
// This code transforms tiles (winograd_tiles.h). oneDNN computes the products: one matrix (tiles, inputs) times one
// matrix (inputs, outputs) for each place of a tile and group. Each thread processes tiles in blocks that stay in its
// cache.

#ifndef CAFFEJAX_KERNELS_WINOGRAD_H_
#define CAFFEJAX_KERNELS_WINOGRAD_H_

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "execution_plan.h"
#include "threads.h"
#include "winograd_weights.h"

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

inline constexpr int kMaxPlaces = 36;

// The pixels of a square of an image, or each `step`-th of a larger one, in the order of `IntoTile`: pointers to the
// first block of channels, and the distances between blocks. Pixels beyond the image are zeros.
struct Pixels {
  Pixels(const float* image, const Image& shape, int64_t top, int64_t left, int size, int64_t step = 1)
      : count(size * size) {
    static constexpr float kZeros[kBlock] = {};
    for (int i = 0; i < count; ++i) {
      int64_t r = top + i / size * step, c = left + i % size * step;
      bool inside = 0 <= r && r < shape.height && 0 <= c && c < shape.width;
      cells[i] = inside ? image + (r * shape.width + c) * shape.pixel : kZeros;
      steps[i] = inside ? shape.block : 0;
    }
  }

  void Skip(int64_t blocks) {
    for (int i = 0; i < count; ++i) cells[i] += steps[i] * blocks;
  }

  int count;
  const float* cells[kMaxPlaces];
  int64_t steps[kMaxPlaces];
};

class Winograd : public Executable {
 public:
  struct Shape {
    int64_t batch, groups, inputs, outputs;  // channels of a group, in full blocks
    Image x, y;
    int64_t top, left;                       // padding
    bool relu = false;
    float slope = 0;
    Tiling tiling = {3, 2};
    int64_t dilation = 1;  // a tile has each `dilation`-th pixel

    int64_t Rows() const { return TilesAlong(y.height) * dilation; }
    int64_t Columns() const { return TilesAlong(y.width) * dilation; }
    int64_t Tiles() const { return batch * Rows() * Columns(); }

    // The image of a tile, and its first row and column in the results.
    struct Corner {
      int64_t image, row, column;
    };

    Corner CornerOf(int64_t tile) const {
      int64_t rows = Rows(), columns = Columns();
      return {tile / (rows * columns), StartOf(tile / columns % rows), StartOf(tile % columns)};
    }

    // Transforms a tile of the input and writes it to row `row` of the matrices (places, groups, rows, inputs).
    void Enter(const float* x, int64_t tile, float* matrices, int64_t row, int64_t matrix_rows) const {
      Corner corner = CornerOf(tile);
      int side = tiling.Side();
      Pixels pixels(x + corner.image * this->x.image, this->x, corner.row - top, corner.column - left, side, dilation);
      for (int64_t group = 0; group < groups; ++group) {
        if (group > 0) pixels.Skip(inputs / kBlock);
        float* to = matrices + (group * matrix_rows + row) * inputs;
        IntoTile(tiling, pixels.cells, pixels.steps, inputs / kBlock, tiling.results * this->x.width * this->x.pixel,
                 to, groups * matrix_rows * inputs);
      }
    }

   private:
    // Returns the number of tiles that cover each `dilation`-th of `size` pixels.
    int64_t TilesAlong(int64_t size) const {
      int64_t span = tiling.results * dilation;
      return (size + span - 1) / span;
    }

    // Returns the first pixel along an axis of a tile. Tiles that begin with adjacent pixels follow each other.
    int64_t StartOf(int64_t tile) const { return tile / dilation * dilation * tiling.results + tile % dilation; }
  };

  // Costs of a number in multiplications, as measured: of transforming it in a tile, of reading it (and, if the weight
  // is not packed in advance, of transforming it) in a transformed weight, and of reading it in a plain weight.
  struct Costs {
    double tile = 26, transformed_weight = 20, plain_weight = 15;
    double largest_weight = 5e6;  // numbers of a transformed weight, which a frozen net stores
    double many_tiles = 256;      // from so many tiles on, the transformed weight may be larger
  };
  static constexpr double kNever = std::numeric_limits<double>::infinity();  // for `many_tiles`
  static constexpr double kCostOfCall = 1e6;  // in multiplications: 4 us on two cores

  // Returns the tiling that is fastest for kernels of this size by a count of multiplications and the costs, or nothing
  // if the plain convolution is.
  static std::optional<Tiling> Fastest(Shape shape, int64_t kernel, const Costs& costs) {
    if (shape.inputs % kBlock || shape.outputs % kBlock) return std::nullopt;
    double channels = shape.groups * (shape.inputs + shape.outputs);
    double pairs = static_cast<double>(shape.groups) * shape.inputs * shape.outputs;
    double least = kernel * kernel * pairs * (shape.batch * shape.y.height * shape.y.width + costs.plain_weight);
    std::optional<Tiling> fastest;
    for (Tiling tiling : {Tiling{3, 2}, Tiling{3, 4}, Tiling{5, 2}}) {
      shape.tiling = tiling;
      double tiles = shape.Tiles();
      double cost_of_place = pairs * tiles + costs.tile * channels * tiles + costs.transformed_weight * pairs;
      double cost = kCostOfCall + tiling.Places() * cost_of_place;
      bool is_large = tiling.Places() * pairs > costs.largest_weight && tiles < costs.many_tiles;
      if (tiling.kernel != kernel || cost >= least || is_large) continue;
      least = cost;
      fastest = tiling;
    }
    return fastest;
  }

  explicit Winograd(const Shape& shape) : s_(shape), places_(shape.tiling.Places()), threads_(MaxThreads()) {
    block_ = Block();
    ScopedSingleThread alone;
    Dims x{places_ * s_.groups, block_, s_.inputs}, w{x[0], s_.inputs, s_.outputs}, y{x[0], block_, s_.outputs};
    pd_ = dnnl::matmul::primitive_desc(Engine(), Plain(x), AnyOrder(w), Plain(y), Attributes());
    multiply_ = dnnl::primitive(pd_.get());
    products_ = AlignUp(pd_.src_desc().get_size());
    scratchpad_ = products_ + AlignUp(pd_.dst_desc().get_size());
    thread_bytes_ = scratchpad_ + AlignUp(pd_.scratchpad_desc().get_size());
  }

  bool IsTuned() const { return caffejax::IsTuned(pd_) && PanelOf(Weight()) > 0; }

  memory::desc Weight() const { return pd_.weights_desc(); }

  // Bytes of the intermediate matrices.
  memory::desc Scratchpad() const {
    return memory::desc({static_cast<int64_t>(thread_bytes_ * threads_)}, memory::data_type::u8, memory::format_tag::a);
  }

  void Run(const std::vector<dnnl_exec_arg_t>& operands) const override {
    auto at = [&](int number) { return FloatsOf(operands, number); };
    Run(at(DNNL_ARG_SRC), at(DNNL_ARG_WEIGHTS), at(DNNL_ARG_BIAS), at(DNNL_ARG_SRC_1), at(DNNL_ARG_DST),
        reinterpret_cast<char*>(at(DNNL_ARG_SCRATCHPAD)));
  }

  // `bias` and `added` may be null.
  void Run(const float* x, float* weight, const float* bias, const float* added, float* y, char* scratchpad) const {
    Arrays arrays{x, y, bias, added};
    RunInParallel(threads_, [&](int thread, int threads) {
      char* scratch = scratchpad + thread * thread_bytes_;
      memory tiles(pd_.src_desc(), Engine(), scratch), w(pd_.weights_desc(), Engine(), weight),
          results(pd_.dst_desc(), Engine(), scratch + products_),
          primitive_scratch(pd_.scratchpad_desc(), Engine(), scratch + scratchpad_);
      for (int64_t from = thread * block_; from < s_.Tiles(); from += threads * block_) {
        int64_t to = std::min(from + block_, s_.Tiles());
        auto inputs = reinterpret_cast<float*>(scratch);
        for (int64_t tile = from; tile < to; ++tile) s_.Enter(x, tile, inputs, tile - from, block_);
        multiply_.execute(Stream(), {{DNNL_ARG_SRC, tiles},
                                     {DNNL_ARG_WEIGHTS, w},
                                     {DNNL_ARG_DST, results},
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

  // The number of tiles in a block. A block has as many tiles as fit in the cache, or more, until they take more memory
  // than the weights, but there is at least one block for each thread.
  int64_t Block() const {
    constexpr int64_t kCache = (768 << 10) / sizeof(float);
    int64_t channels = s_.inputs + s_.outputs;
    int64_t most = std::max(kCache / (places_ * s_.groups * channels), s_.inputs * s_.outputs / channels);
    int64_t count = (s_.Tiles() + most - 1) / std::max<int64_t>(most, 1);
    count = (count + threads_ - 1) / threads_ * threads_;
    return ((s_.Tiles() + count - 1) / count) |
           1;  // odd, so that the matrices begin at different positions in the cache
  }

  // Transforms row `row` of the matrices to the results of a tile.
  void Leave(const Arrays& arrays, int64_t tile, const float* matrices, int64_t row) const {
    Shape::Corner corner = s_.CornerOf(tile);
    int results = s_.tiling.results;
    float beyond[kBlock] = {}, *cells[kMaxPlaces], *y = arrays.y + corner.image * s_.y.image;
    const float *added[kMaxPlaces], *other = arrays.added + (arrays.added ? corner.image * s_.y.image : 0);
    int64_t steps[kMaxPlaces];
    for (int i = 0; i < results * results; ++i) {
      int64_t r = corner.row + i / results * s_.dilation, c = corner.column + i % results * s_.dilation;
      int64_t at = (r * s_.y.width + c) * s_.y.pixel;
      bool inside = r < s_.y.height && c < s_.y.width;
      cells[i] = inside ? y + at : beyond;
      added[i] = inside ? other + at : beyond;
      steps[i] = inside ? s_.y.block : 0;
    }
    Finish finish{arrays.bias, arrays.added ? added : nullptr, s_.relu, s_.slope};
    int64_t blocks = s_.outputs / kBlock;
    for (int64_t group = 0; group < s_.groups; ++group) {
      const float* from = matrices + (group * block_ + row) * s_.outputs;
      FromTile(s_.tiling, from, s_.groups * block_ * s_.outputs, blocks, finish, cells, steps);
      if (finish.bias) finish.bias += s_.outputs;
      for (int i = 0; i < results * results; ++i) cells[i] += steps[i] * blocks, added[i] += steps[i] * blocks;
    }
  }

  Shape s_;
  int places_;
  int64_t block_;
  int threads_;
  dnnl::matmul::primitive_desc pd_;
  dnnl::primitive multiply_;
  // for each thread: the offsets of its products and of oneDNN's scratchpad, and its size in bytes
  size_t products_, scratchpad_, thread_bytes_;
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_WINOGRAD_H_
