// Post-ops: statements that are applied to the result of an operation in the same pass, if oneDNN supports it.

#ifndef CAFFEJAX_KERNELS_POST_OPS_H_
#define CAFFEJAX_KERNELS_POST_OPS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "execution_plan.h"

namespace caffejax {

// The elementwise function of a statement, or nothing if it is not elementwise.
inline std::optional<dnnl::algorithm> Pointwise(const Statement& s) {
  using a = dnnl::algorithm;
  static const auto& algorithms = *new std::map<std::string, a>{{"abs", a::eltwise_abs},
                                                                {"clip", a::eltwise_clip},
                                                                {"elu", a::eltwise_elu},
                                                                {"exp", a::eltwise_exp},
                                                                {"hardsigmoid", a::eltwise_hardsigmoid},
                                                                {"hardswish", a::eltwise_hardswish},
                                                                {"linear", a::eltwise_linear},
                                                                {"logistic", a::eltwise_logistic},
                                                                {"relu", a::eltwise_relu},
                                                                {"softplus", a::eltwise_soft_relu},
                                                                {"swish", a::eltwise_swish},
                                                                {"tanh", a::eltwise_tanh},
                                                                {"square", a::eltwise_square},
                                                                {"mish", a::eltwise_mish},
                                                                {"log", a::eltwise_log},
                                                                {"power", a::eltwise_pow}};
  auto entry = algorithms.find(s.name);
  if (entry == algorithms.end()) return std::nullopt;
  return entry->second;
}

// A combination with a second value, or with a weight of one number for each channel.
inline dnnl::algorithm Pairwise(const Statement& s) {
  if (s.name == "plus") return dnnl::algorithm::binary_add;
  if (s.name == "times") return dnnl::algorithm::binary_mul;
  if (s.name == "maximum") return dnnl::algorithm::binary_max;
  throw Refused("no operation " + s.name);
}

// oneDNN's post-ops of an operation, and the additional operands that they need.
struct PostOps {
  dnnl::post_ops ops;
  Operands operands;

  dnnl::primitive_attr Attributes() const {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    attributes.set_post_ops(ops);
    return attributes;
  }

  void Add(const Statement& s) {
    if (auto pointwise = Pointwise(s)) {
      ops.append_eltwise(*pointwise, s.Number("a"), s.Number("b"));
    } else {
      throw Refused(s.name + " needs an operand");
    }
  }

  void Add(const Statement& s, const Tensor& operand) {
    if (s.name == "prelu") {
      ops.append_prelu(2);  // a slope for each channel
      operands.emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(ops.len() - 1) | DNNL_ARG_WEIGHTS, operand);
      return;
    }
    ops.append_binary(Pairwise(s), operand.layout);
    operands.emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(ops.len() - 1) | DNNL_ARG_SRC_1, operand);
  }

  void AddInPlace(const Statement& s, const Tensor& value) {
    bool steps = IsQuantized(value.layout);
    ops.append_sum(steps ? s.Number("a") : 1, 0, value.layout.get_data_type());
  }
};

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_POST_OPS_H_
