// The one error of the loader: a stable code, and what to do in words.
#pragma once

#include <stdexcept>
#include <string>

namespace slipway {

/// Why something was refused. The codes are those of `slipway.loader` in Python, listed in docs/loader.md.
class Error : public std::runtime_error {
 public:
    Error(std::string code, const std::string& message)
        : std::runtime_error(message), code_(std::move(code)) {}
    const std::string& code() const noexcept { return code_; }

 private:
    std::string code_;
};

}  // namespace slipway
