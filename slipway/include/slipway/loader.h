// Loads towers that `slipway prepare` has written, and runs them: for servers in C++.
//
//     #include <slipway/loader.h>
//
//     slipway::Tower tower = slipway::load("/models/feed", "user");
//     slipway::Tensors outputs = tower.run(inputs);     // by name; from as many threads as you like
//     tower.swap("/models/feed-newer");                 // while they call
//
// Needs libtorch (the one that compiled the artifact), Linux and C++17; no other library. See docs/loader.md.
#pragma once

#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "slipway/detail/chain.h"
#include "slipway/detail/contract.h"
#include "slipway/detail/error.h"
#include "slipway/detail/options.h"

namespace slipway {

/// A tower that is ready to be called, whether it is one package or two.
///
/// All methods may be called from several threads at once.
class Tower {
 public:
    /// Run the tower on inputs by name; returns all outputs by name.
    ///
    /// Throws Error: `input_refused` for inputs that the manifest does not allow, in its words;
    /// `artifact_damaged` once a lazy check has found damage; `call_failed` for any other failure of a call.
    Tensors run(const Tensors& inputs) const {
        const std::shared_ptr<const detail::Chain> chain = current();
        const std::vector<at::Tensor> values = chain->run(chain->contract.in_order(inputs));
        Tensors outputs;
        for (size_t i = 0; i < values.size(); ++i)
            outputs.emplace(chain->contract.outputs[i].name, values[i]);
        return outputs;
    }

    /// Run the tower on inputs in the order of `inputs()`; returns outputs in the order of `outputs()`.
    std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) const {
        return current()->run(inputs);
    }

    /// Put the same tower of another prepared artifact in the place of this one, while calls go on.
    ///
    /// Calls that began before are answered by the older artifact, later ones by the newer. Returns once
    /// nothing uses the older one any more. Throws Error, and changes nothing, where the newer one cannot be
    /// loaded (as `load` does) or takes or returns other tensors (`swap_refused`).
    void swap(const std::string& newer_artifact) {
        const std::lock_guard<std::mutex> one_at_a_time(state_->swapping);
        std::shared_ptr<const detail::Chain> older = current();
        auto newer = detail::Chain::open(newer_artifact, state_->name, state_->options, older.get());
        if (!newer->contract.has_tensors_of(older->contract))
            throw Error("swap_refused",
                        newer_artifact + " takes or returns other tensors: load it as a tower of its own");
        {
            const std::lock_guard<std::mutex> lock(state_->changing);
            state_->chain = std::move(newer);
        }
        // Here and not in a thread that serves: to unmap large weights takes a while.
        while (older.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

    /// The inputs, in the manifest's order.
    std::vector<TensorSpec> inputs() const { return current()->contract.inputs; }
    /// The outputs, in the manifest's order.
    std::vector<TensorSpec> outputs() const { return current()->contract.outputs; }
    /// The sizes that vary: `Axis::dim` is a place in this list.
    std::vector<Dim> dims() const { return current()->contract.dims; }
    /// The job that exported the artifact that answers now.
    std::string job_id() const { return current()->job_id; }

 private:
    friend Tower load(const std::string&, const std::string&, const Options&);

    struct State {
        std::string name;
        Options options;
        std::mutex swapping;
        mutable std::mutex changing;  // held to copy or replace one pointer
        std::shared_ptr<const detail::Chain> chain;
    };

    explicit Tower(std::unique_ptr<State> state) : state_(std::move(state)) {}

    std::shared_ptr<const detail::Chain> current() const {
        const std::lock_guard<std::mutex> lock(state_->changing);
        return state_->chain;
    }

    std::unique_ptr<State> state_;
};

/// Load a tower ("user", "item", "model", ...) of an artifact that `slipway prepare` has written to a folder.
///
/// Its weights are mapped and used as they lie in the file: processes of a host share them. Sets
/// AOTI_RUNTIME_CHECK_INPUTS=1 in this process, without which a package would read past the end of its
/// inputs: load before other threads read the environment, or set it yourself.
///
/// Throws Error: `artifact_invalid`, `artifact_damaged`, `tower_missing`, `machine_unfit`, `versions_differ`,
/// `operators_missing`.
inline Tower load(const std::string& artifact, const std::string& tower, const Options& options = {}) {
    const char* set = std::getenv("AOTI_RUNTIME_CHECK_INPUTS");
    if (set == nullptr || std::string(set) != "1") setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", /*overwrite=*/1);
    auto state = std::make_unique<Tower::State>();
    state->name = tower;
    state->options = options;
    state->chain = detail::Chain::open(artifact, tower, options);
    return Tower(std::move(state));
}

}  // namespace slipway
