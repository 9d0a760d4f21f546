// The program of a frozen net, as text: what there is to compute, not how.
//
// One statement on each line: a word, then fields, each a word and numbers. `argument dims ...` and `weight dims ...`
// come first, then operations, then `result value i`. Values are numbered: the arguments, then what each operation
// makes. A statement that begins with + belongs to the operation before it, and is computed on what that one makes.

#ifndef CAFFEJAX_KERNELS_FROZEN_PROGRAM_H_
#define CAFFEJAX_KERNELS_FROZEN_PROGRAM_H_

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "onednn_shapes.h"

namespace caffejax {

using Dims = dnnl::memory::dims;

class Statement {
 public:
  std::string name;

  bool Has(const std::string& field) const { return fields_.count(field) > 0; }

  Dims Whole(const std::string& field) const {
    auto found = fields_.find(field);
    Require(found != fields_.end(), name, " has no ", field);
    Dims numbers;
    for (double number : found->second) {
      Require(-kLargest <= number && number <= kLargest, name, ": ", field, " ", number, " is too large");
      numbers.push_back(static_cast<int64_t>(number));
    }
    return numbers;
  }

  // As many whole numbers, each from `least` on.
  Dims Whole(const std::string& field, size_t count, int64_t least) const {
    Dims numbers = Whole(field);
    Require(numbers.size() == count, name, ": ", field, " has ", numbers.size(), " numbers, not ", count);
    for (int64_t number : numbers) Require(number >= least, name, ": ", field, " ", number, " is less than ", least);
    return numbers;
  }

  int64_t One(const std::string& field) const { return Whole(field, 1, 0)[0]; }

  float Number(const std::string& field) const {
    auto found = fields_.find(field);
    Require(found != fields_.end() && found->second.size() == 1, name, " has not one ", field);
    return static_cast<float>(found->second[0]);
  }

  static Statement Read(const std::string& line) {
    Statement made;
    std::istringstream words(line);
    words >> made.name;
    std::vector<double>* into = nullptr;
    for (std::string word; words >> word;) {
      char* end;
      double number = std::strtod(word.c_str(), &end);
      if (*end != 0) {
        into = &made.fields_[word];
      } else {
        Require(into != nullptr, made.name, ": ", word, " belongs to no field");
        into->push_back(number);
      }
    }
    return made;
  }

 private:
  std::map<std::string, std::vector<double>> fields_;
};

struct Operation {
  Statement self;
  std::vector<Statement> after;

  Dims Out() const { return self.Whole("out"); }
};

struct Program {
  std::vector<Dims> arguments, weights;
  std::vector<Operation> operations;
  std::vector<int64_t> results;

  // What a value is: an argument, or the shape that an operation gives.
  Dims Shape(int64_t value) const {
    Require(0 <= value && value < Values(), "no value ", value);
    int64_t own = value - static_cast<int64_t>(arguments.size());
    return own < 0 ? arguments[value] : operations[own].Out();
  }

  const Dims& Weight(int64_t i) const {
    Require(0 <= i && i < static_cast<int64_t>(weights.size()), "no weight ", i);
    return weights[i];
  }

  int64_t Values() const { return static_cast<int64_t>(arguments.size() + operations.size()); }
};

inline Program ReadProgram(const std::string& text) {
  Program program;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Statement s = Statement::Read(line);
    if (s.name == "argument") {
      program.arguments.push_back(s.Whole("dims"));
    } else if (s.name == "weight") {
      program.weights.push_back(s.Whole("dims"));
    } else if (s.name == "result") {
      program.results.push_back(s.One("value"));
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

#endif  // CAFFEJAX_KERNELS_FROZEN_PROGRAM_H_
