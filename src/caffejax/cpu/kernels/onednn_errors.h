// Converts exceptions in foreign functions to XLA's errors, because XLA is compiled without exceptions.

#ifndef CAFFEJAX_KERNELS_ONEDNN_ERRORS_H_
#define CAFFEJAX_KERNELS_ONEDNN_ERRORS_H_

#include <exception>
#include <new>
#include <string>

#include <oneapi/dnnl/dnnl.hpp>

#include "onednn_shapes.h"

#include "xla/ffi/api/ffi.h"

namespace caffejax {

template <typename Body>
xla::ffi::Error Described(const std::string& name, Body body) {
  try {
    body();
    return xla::ffi::Error::Success();
  } catch (const Refused& refused) {
    return xla::ffi::Error::InvalidArgument("caffejax: " + name + ": " + refused.what());
  } catch (const dnnl::error& error) {
    return xla::ffi::Error::Internal("caffejax: " + name + ": oneDNN: " + error.what());
  }
}

template <typename Body>
xla::ffi::Error Guarded(const char* name, Body body) noexcept {
  try {
    return Described(name, body);
  } catch (const std::bad_alloc&) {
    return xla::ffi::Error(xla::ffi::ErrorCode::kResourceExhausted, "no memory");  // too short to need memory
  } catch (...) {
    return xla::ffi::Error::Internal("unknown error");
  }
}

}  // namespace caffejax

#endif  // CAFFEJAX_KERNELS_ONEDNN_ERRORS_H_
