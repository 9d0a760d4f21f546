// Shapes of convolutions and matrix products, and checks that all arrays agree, before any memory is read or written.

#ifndef CAFFEJAX_KERNELS_ONEDNN_SHAPES_H_
#define CAFFEJAX_KERNELS_ONEDNN_SHAPES_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

#include "xla/ffi/api/ffi.h"

namespace caffejax {

using Array = xla::ffi::Buffer<xla::ffi::F32>;
using Numbers = xla::ffi::Span<const int64_t>;

// An error in the arguments of a call.
class Refused : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

inline std::ostream& operator<<(std::ostream& out, const Numbers& numbers) {
  const char* between = "(";
  for (int64_t number : numbers) {
    out << between << number;
    between = ", ";
  }
  return out << (numbers.size() ? ")" : "()");
}

inline std::ostream& operator<<(std::ostream& out, const Array& array) { return out << array.dimensions(); }

// Throws `Refused` if the condition does not hold. The message is composed only then.
template <typename... Parts>
void Require(bool holds, const Parts&... parts) {
  if (holds) return;
  std::ostringstream text;
  (text << ... << parts);
  throw Refused(text.str());
}

// Settings for each spatial axis. `low` is the padding at the start, `high` at the end.
struct Window {
  Numbers stride, dilation, low, high;
  int64_t groups;
};

// x (batch, *size, inputs) with weight (outputs, inputs / groups, *kernel), plus bias (outputs,) if there is one, is y
// (batch, *output size, outputs). A gradient has the shape of its array.
struct Convolution {
  Array x, weight, y;
  std::optional<Array> bias;
  Window window;
};

// a (m, k) times b (k, n), plus bias (n,) if there is one, is c (m, n). `a` and `b` may be stored transposed.
struct Product {
  Array a, b, c;
  std::optional<Array> bias;
  bool transpose_a, transpose_b;

  int64_t M() const { return a.dimensions()[transpose_a ? 1 : 0]; }
  int64_t K() const { return a.dimensions()[transpose_a ? 0 : 1]; }
  int64_t N() const { return b.dimensions()[transpose_b ? 0 : 1]; }
};

// oneDNN uses 32-bit sizes in some places.
inline constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();

inline bool AllBetween(int64_t low, Numbers numbers, int64_t high) {
  return std::all_of(numbers.begin(), numbers.end(), [=](int64_t n) { return low <= n && n <= high; });
}

inline void CheckArray(const char* name, const Array& array, size_t rank) {
  Numbers shape = array.dimensions();
  Require(shape.size() == rank, name, " ", shape, " must have ", rank, " axes");
  Require(AllBetween(1, shape, kLargest), name, " ", shape, " has an axis that is empty or too long");
  int64_t bytes = sizeof(float);
  for (int64_t n : shape) Require(!__builtin_mul_overflow(bytes, n, &bytes), name, " ", shape, " is too large");
}

inline void CheckBias(const std::optional<Array>& bias, int64_t outputs) {
  if (!bias) return;
  CheckArray("bias", *bias, 1);
  Require(bias->dimensions()[0] == outputs, "bias ", *bias, " is not of ", outputs, " outputs");
}

inline void CheckSame(const char* name, const Array& array, const Array& gradient) {
  Require(array.dimensions() == gradient.dimensions(), name, " ", array, " and its gradient ", gradient, " differ");
}

inline void CheckWindow(const Window& w, size_t axes) {
  for (auto [name, numbers, least] :
       {std::tuple{"stride", w.stride, 1}, {"dilation", w.dilation, 1}, {"low", w.low, 0}, {"high", w.high, 0}}) {
    Require(numbers.size() == axes, name, " ", numbers, " is not for ", axes, " axes");
    Require(AllBetween(least, numbers, kLargest), name, " ", numbers, " is not from ", least, " to ", kLargest);
  }
}

// No sum or product overflows 64 bits, because all operands were checked to fit in 32.
inline void CheckOutputSize(const Convolution& c, size_t axis) {
  const Window& w = c.window;
  int64_t kernel = c.weight.dimensions()[axis + 2], y = c.y.dimensions()[axis + 1];
  int64_t padded = c.x.dimensions()[axis + 1] + w.low[axis] + w.high[axis];
  int64_t rest = padded - (w.dilation[axis] * (kernel - 1) + 1);
  Require(padded <= kLargest && rest >= 0 && y == rest / w.stride[axis] + 1, "x ", c.x, " with weight ", c.weight,
          ", stride ", w.stride, ", dilation ", w.dilation, ", padding ", w.low, " and ", w.high, " is not y ", c.y);
}

inline void Check(const Convolution& c) {
  size_t rank = c.x.dimensions().size(), axes = rank - 2;
  Require(3 <= rank && rank <= 5, "x ", c.x, " must have 1 to 3 spatial axes");
  CheckArray("x", c.x, rank);
  CheckArray("weight", c.weight, rank);
  CheckArray("y", c.y, rank);
  CheckWindow(c.window, axes);

  int64_t groups = c.window.groups, inputs = c.x.dimensions().back(), outputs = c.weight.dimensions()[0];
  Require(groups > 0 && inputs % groups == 0 && outputs % groups == 0, groups, " groups do not divide the inputs of x ",
          c.x, " and the outputs of weight ", c.weight);
  Require(c.weight.dimensions()[1] == inputs / groups, "weight ", c.weight, " in ", groups,
          " groups is not for the inputs of x ", c.x);
  Require(c.y.dimensions().front() == c.x.dimensions().front() && c.y.dimensions().back() == outputs, "y ", c.y,
          " must have the batch of x ", c.x, " and the outputs of weight ", c.weight);
  CheckBias(c.bias, outputs);
  for (size_t axis = 0; axis < axes; ++axis) CheckOutputSize(c, axis);
}

inline void Check(const Product& p) {
  CheckArray("a", p.a, 2);
  CheckArray("b", p.b, 2);
  CheckArray("c", p.c, 2);
  Require(
      p.b.dimensions()[p.transpose_b ? 1 : 0] == p.K() && p.c.dimensions()[0] == p.M() && p.c.dimensions()[1] == p.N(),
      "a ", p.a, p.transpose_a ? " transposed" : "", " times b ", p.b, p.transpose_b ? " transposed" : "", " is not c ",
      p.c);
  CheckBias(p.bias, p.N());
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_ONEDNN_SHAPES_H_
