// What a server may choose when it loads a tower.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace slipway {

using Tensors = std::unordered_map<std::string, at::Tensor>;

/// When weights are compared with their digests. Code and descriptions always are, before anything is loaded.
enum class Check {
    all,     // before `load` returns
    lazily,  // by a thread of low priority, each chunk once a call has brought some of it into memory; damage
             // makes every later call fail
    never,
};

struct Options {
    Check check = Check::lazily;
    size_t runners = 0;  // calls at a time, others wait; 0: one per hardware thread
    std::vector<std::string>
        library_folders;  // of operators' libraries, by Python module; beside torch if not there
    // For a tower with sharded tables: returns the inputs of its package for those of the tower. An Error
    // `input_refused` that it throws is the caller's; docs/serving.md says what there is to look up.
    std::function<Tensors(const Tensors&)> look_up;
};

}  // namespace slipway
