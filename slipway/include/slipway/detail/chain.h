// A tower as one artifact has it: its packages in calling order, and what they promise.
#pragma once

#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "slipway/detail/contract.h"
#include "slipway/detail/files.h"
#include "slipway/detail/json.h"
#include "slipway/detail/machine.h"
#include "slipway/detail/options.h"
#include "slipway/detail/package.h"
#include "slipway/detail/slots.h"
#include "slipway/detail/weights_check.h"

namespace slipway::detail {

/// A loaded tower of one artifact. Nothing in it changes, so that a call sees one artifact from end to end.
class Chain {
 public:
    /// Load a tower; where its code is that of `older`, that code is used. Throws Error.
    static std::shared_ptr<const Chain> open(const std::filesystem::path& root, const std::string& tower,
                                             const Options& options, const Chain* older = nullptr) {
        try {
            return std::shared_ptr<const Chain>(new Chain(Description(root), root, tower, options, older));
        } catch (const Error&) {
            throw;
        } catch (const std::exception& error) {  // of the reader of JSON, or of torch
            const std::string words = error.what();
            throw Error("artifact_invalid", root.string() + ": " + words.substr(0, words.find('\n')));
        }
    }

    std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) const {
        contract.require(inputs);
        if (lazy_check_) lazy_check_->require_undamaged();
        std::vector<at::Tensor> tensors = look_up_ ? looked_up(inputs) : inputs;
        const Slots::Taken slot(slots_);
        try {
            for (const Step& step : steps_) {
                std::vector<at::Tensor> given;
                given.reserve(step.order.size());
                for (const size_t which : step.order) given.push_back(tensors[which].contiguous());
                tensors = step.package->run(given);
            }
        } catch (const std::exception& error) {
            explain(error.what(), inputs);
        }
        std::vector<at::Tensor> outputs;
        outputs.reserve(outputs_.size());
        for (const size_t which : outputs_) outputs.push_back(tensors[which]);
        return outputs;
    }

    Contract contract;
    std::string job_id;  // of the export that made the artifact

 private:
    /// What the files of a prepared artifact say about it.
    struct Description {
        explicit Description(const std::filesystem::path& root) {
            if (!std::filesystem::exists(root / "prepared.json"))
                throw Error("artifact_invalid",
                            root.string() +
                                " has no prepared.json: run slipway prepare on the artifact, and "
                                "load the folder that it writes");
            const MappedFile index_file(root / "prepared.json"), digest(root / "prepared.json.sha256");
            if (digest.text().substr(0, 64) != digest_of(index_file))
                damaged(index_file.path() + " has another digest");
            index = Json::parse(index_file.text(), "prepared.json");
            if (index.at("format").text() != "slipway-prepared" || index.at("version").integer() != 1)
                throw Error("artifact_invalid",
                            root.string() + " was prepared by another version of Slipway: prepare it again");
            const MappedFile manifest_file(root / "manifest.json");
            if (index.at("manifest_sha256").text() != digest_of(manifest_file))
                damaged(manifest_file.path() + " has another digest than prepared.json gives");
            manifest = Json::parse(manifest_file.text(), "manifest.json");
        }
        static std::string digest_of(const MappedFile& file) {
            return Sha256::hexadecimal(Sha256::of(file.begin(), file.size()));
        }

        Json index;
        Json manifest;
    };

    struct Step {
        std::unique_ptr<Package> package;
        std::vector<size_t> order;  // of its inputs, among the tensors before it
    };

    [[noreturn]] void explain(std::string_view words, const std::vector<at::Tensor>& inputs) const {
        for (const std::string_view memory : {"out of memory", "DefaultCPUAllocator: ", "std::bad_alloc"})
            if (words.find(memory) != std::string_view::npos)
                throw Error("call_failed", std::string(words.substr(0, words.find('\n'))));
        throw Error("input_refused", contract.meaning_of(words, inputs));
    }

    std::vector<at::Tensor> looked_up(const std::vector<at::Tensor>& inputs) const {
        Tensors by_name;
        for (size_t i = 0; i < inputs.size(); ++i) by_name.emplace(contract.inputs[i].name, inputs[i]);
        const Tensors found = look_up_(by_name);
        std::vector<at::Tensor> ordered;
        for (const std::string& name : looked_up_) {
            const auto at = found.find(name);
            if (at == found.end()) throw Error("call_failed", "the lookup has returned no " + name);
            ordered.push_back(at->second);
        }
        return ordered;
    }

    static const Json& find_tower(const Json& towers, const std::string& name, const std::string& artifact) {
        std::string names;
        for (const Json& tower : towers.array()) {
            if (tower.at("name").text() == name) return tower;
            names += (names.empty() ? "" : ", ") + tower.at("name").text();
        }
        throw Error("tower_missing", artifact + " has no " + name + " tower; it has: " + names);
    }

    Chain(const Description& read, const std::filesystem::path& root, const std::string& tower,
          const Options& options, const Chain* older)
        : Chain(read, find_tower(read.manifest.at("towers"), tower, root.string()),
                find_tower(read.index.at("towers"), tower, root.string()), root, options, older) {}

    Chain(const Description& read, const Json& published, const Json& prepared,
          const std::filesystem::path& root, const Options& options, const Chain* older)
        : contract(published), job_id(read.manifest.at("job_id").text()), slots_(calls_at_a_time(options)) {
        require_machine(read.manifest, root.string());
        for (const Json& module : read.manifest.at("op_libraries").array())
            load_operators(module.text(), options.library_folders, root.string());
        std::vector<std::string> names;
        for (const TensorSpec& input : contract.inputs) names.push_back(input.name);
        if (const Json* tables = published.find("tables")) {
            if (!options.look_up)
                throw Error("artifact_invalid", root.string() +
                                                    " has its tables in shards, and no package that looks "
                                                    "them up: give load a look_up");
            look_up_ = options.look_up;
            names.clear();
            for (const Json& tensor : tables->at("tensors").array())
                names.push_back(tensor.at("name").text());
            looked_up_ = names;
        }
        const auto& packages = prepared.at("packages").array();
        for (size_t i = 0; i < packages.size(); ++i) {
            const Package* before =
                older != nullptr && i < older->steps_.size() ? older->steps_[i].package.get() : nullptr;
            Step& step = steps_.emplace_back();
            step.package = std::make_unique<Package>(root, packages[i], read.index.at("chunk").size(),
                                                     calls_at_a_time(options), before);
            step.order = places(step.package->takes, names, packages[i].path());
            names = step.package->returns;
        }
        std::vector<std::string> outputs;
        for (const TensorSpec& output : contract.outputs) outputs.push_back(output.name);
        outputs_ = places(outputs, names, published.path());
        check(options.check);
    }

    static size_t calls_at_a_time(const Options& options) {
        return options.runners > 0 ? options.runners : std::max(1U, std::thread::hardware_concurrency());
    }

    static void require_machine(const Json& manifest, const std::string& artifact) {
        if (manifest.at("device").text() != "cpu")
            throw Error("machine_unfit", artifact + " was built for " + manifest.at("architecture").text() +
                                             ": this loader runs towers for CPUs");
        require_architecture(manifest.at("architecture").text(), artifact);
        require_torch(manifest.at("versions").at("torch").text(), artifact);
    }

    static std::vector<size_t> places(const std::vector<std::string>& wanted,
                                      const std::vector<std::string>& among, const std::string& where) {
        std::vector<size_t> found;
        for (const std::string& name : wanted) {
            const auto at = std::find(among.begin(), among.end(), name);
            if (at == among.end())
                throw Error("artifact_invalid", where + " and its code disagree: there is no " + name);
            found.push_back(static_cast<size_t>(at - among.begin()));
        }
        return found;
    }

    void check(Check when) {
        std::vector<const CheckedFile*> files;
        for (const Step& step : steps_)
            if (step.package->weights() != nullptr) files.push_back(step.package->weights());
        if (when == Check::lazily)
            lazy_check_ = std::make_unique<LazyCheck>(std::move(files));
        else if (when == Check::all)
            for (const CheckedFile* file : files) require_all_chunks(*file);
    }

    mutable Slots slots_;
    std::function<Tensors(const Tensors&)> look_up_;
    std::vector<std::string> looked_up_;  // the names of what it returns
    std::vector<Step> steps_;
    std::vector<size_t> outputs_;            // of the manifest, among those of the last package
    std::unique_ptr<LazyCheck> lazy_check_;  // ends before the files that it reads
};

}  // namespace slipway::detail
