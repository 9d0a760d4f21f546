// Reads the program of a frozen net, a text that cpu/kernels/onednn_program.py writes: what to compute, not how.
//
// Each line is a statement: a word, then fields, each a name and numbers. First `argument dims 1 8 3` for the shape of
// each argument of the program, and `weight dims ...` for that of each weight. Then the operations, such as
// `concat in 0 1 axis 1 out 1 8 3`, and `result value 2` for each result of the program. The values are the arguments
// and the results of the operations, numbered in this order from 0. A word that begins with + is applied to the result
// of the operation before it.
//
// Values are float32, except if an operation has a field `bfloat16`, `int8` or `uint8`, without numbers. An operation
// computes in the type of its first input. Only "convert" may have an input whose type differs from its result's. An
// integer stands for the product of itself and a step. "scale" is the weight (1,) with the step of the result. "scales"
// is the weight with the step of the input: of shape (1,) for "convert"; of shape (outputs,) for operations with a
// weight of integers, where the steps of the weight are multiplied by the step of the input. A statement that adds an
// integer value has the step of that value as "a" and as the weight "scale".

#ifndef CAFFEJAX_KERNELS_PROGRAM_H_
#define CAFFEJAX_KERNELS_PROGRAM_H_

#include <algorithm>
#include <clocale>
#include <cstdlib>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "onednn_primitives.h"

namespace caffejax {

// The fields. The words are the keys of the tables in `Build::Compute` and of the functions of post_ops.h.
inline constexpr const char* kFields[] = {"dims",     "in",       "out",    "weight", "bias",   "value", "stride",
                                          "dilation", "low",      "high",   "kernel", "groups", "axis",  "from",
                                          "order",    "size",     "within", "alpha",  "beta",   "k",     "a",
                                          "b",        "bfloat16", "int8",   "uint8",  "scale",  "scales"};

class Statement {
 public:
  std::string name;
  std::map<std::string, std::vector<double>> fields;

  bool Has(const std::string& field) const { return fields.count(field) > 0; }

  const std::vector<double>& Values(const std::string& field) const {
    auto entry = fields.find(field);
    Require(entry != fields.end(), name, " has no ", field);
    return entry->second;
  }

  Dims IntegerList(const std::string& field) const {
    Dims integers;
    for (double number : Values(field)) {
      Require(-kLargest <= number && number <= kLargest, name, ": ", field, " ", number, " is too large");
      integers.push_back(static_cast<int64_t>(number));
    }
    return integers;
  }

  // `count` integers, each at least `least`.
  Dims IntegerList(const std::string& field, size_t count, int64_t least) const {
    Dims numbers = IntegerList(field);
    Require(numbers.size() == count, name, ": ", field, " has ", numbers.size(), " numbers, not ", count);
    for (int64_t number : numbers) Require(number >= least, name, ": ", field, " ", number, " is less than ", least);
    return numbers;
  }

  Type ResultType() const {
    return Has("bfloat16") ? Type::bf16 : Has("int8") ? Type::s8 : Has("uint8") ? Type::u8 : Type::f32;
  }

  int64_t Integer(const std::string& field) const { return IntegerList(field, 1, 0)[0]; }

  float Number(const std::string& field) const {
    Require(Values(field).size() == 1, name, " must have one ", field);
    return static_cast<float>(Values(field)[0]);
  }
};

struct Operation {
  Statement self;
  std::vector<Statement> after;

  Dims Out() const { return self.IntegerList("out"); }
};

struct Program {
  std::vector<Dims> arguments, weights;
  std::vector<Operation> operations;
  std::vector<int64_t> results;

  // The shape of a value: of an argument, or of an operation's result.
  Dims Shape(int64_t value) const {
    Require(0 <= value && value < Values(), "no value ", value);
    int64_t index = value - static_cast<int64_t>(arguments.size());
    return index < 0 ? arguments[value] : operations[index].Out();
  }

  const Dims& Weight(int64_t i) const {
    Require(0 <= i && i < static_cast<int64_t>(weights.size()), "no weight ", i);
    return weights[i];
  }

  int64_t Values() const { return static_cast<int64_t>(arguments.size() + operations.size()); }
};

// Returns the number that a word is. The global locale, which a program's user may set, does not matter.
inline double Number(const std::string& word) {
  static const locale_t classic = newlocale(LC_ALL_MASK, "C", nullptr);
  char* end;
  double number = strtod_l(word.c_str(), &end, classic);
  Require(*end == 0, "no field or number ", word);
  return number;
}

inline Statement ReadStatement(const std::string& line) {
  std::istringstream words(line);
  Statement statement;
  words >> statement.name;
  std::vector<double>* numbers = nullptr;
  for (std::string word; words >> word;) {
    if (std::find(std::begin(kFields), std::end(kFields), word) != std::end(kFields)) {
      numbers = &statement.fields[word];
    } else {
      double number = Number(word);
      Require(numbers != nullptr, statement.name, ": ", word, " belongs to no field");
      numbers->push_back(number);
    }
  }
  return statement;
}

inline Program ReadProgram(const std::string& text) {
  Program program;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Statement s = ReadStatement(line);
    if (s.name == "argument") {
      program.arguments.push_back(s.IntegerList("dims"));
    } else if (s.name == "weight") {
      program.weights.push_back(s.IntegerList("dims"));
    } else if (s.name == "result") {
      program.results.push_back(s.Integer("value"));
    } else if (s.name[0] == '+') {
      Require(!program.operations.empty(), s.name, " comes before the first operation");
      s.name.erase(0, 1);
      program.operations.back().after.push_back(s);
    } else {
      program.operations.push_back({s, {}});
    }
  }
  for (int64_t result : program.results) program.Shape(result);
  return program;
}

inline int64_t Bytes(const Dims& dims) {
  int64_t bytes = sizeof(float);
  for (int64_t n : dims) {
    Require(0 < n && n <= kLargest && !__builtin_mul_overflow(bytes, n, &bytes), "a shape is empty or too large");
  }
  return bytes;
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_PROGRAM_H_
