// One package of a prepared artifact: compiled code, and weights that it reads where they are mapped.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "slipway/detail/contract.h"
#include "slipway/detail/files.h"
#include "slipway/detail/json.h"

namespace slipway::detail {

class Package {
 public:
    /// Load the code and map the weights of an entry of the index; the code's digests are checked here.
    ///
    /// At most `runners` calls may run at a time. Code that is equal to that of `older` is not opened again.
    Package(const std::filesystem::path& root, const Json& entry, size_t chunk, size_t runners,
            const Package* older)
        : library_(below(root, entry.at("library")).string()), code_(entry.at("code_sha256").text()) {
        std::string library;  // its digest
        for (const Json& file : entry.at("code").array()) {
            require_digest(root, file);
            if (file.at("path").text() == entry.at("library").text()) library = file.at("sha256").text();
        }
        if (library.empty())
            throw Error("artifact_invalid", entry.path() + " does not list its library as code");
        if (older != nullptr && older->code_ == code_ && digest_of(older->library_) == library)
            library_ = older->library_;
        if (const Json* weights = entry.find("weights"))
            weights_ = std::make_unique<CheckedFile>(root, *weights, chunk);
        runner_ = std::make_unique<torch::inductor::AOTIModelContainerRunnerCpu>(library_, runners);
        give_weights(entry.find("weights"));
        const std::vector<std::string> spec = runner_->get_call_spec();
        const Json taken = Json::parse(spec.at(0), library_ + ": its inputs");
        takes =
            names_in(taken.array().at(1).at("children_spec").array().at(0).at("children_spec").array().at(0));
        returns = names_in(Json::parse(spec.at(1), library_ + ": its outputs").array().at(1));
    }

    std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) const { return runner_->run(inputs); }

    const CheckedFile* weights() const { return weights_.get(); }

    std::vector<std::string> takes;    // the names of its inputs, in its order
    std::vector<std::string> returns;  // and of its outputs

 private:
    /// Hand the container tensors in the mapped file, which it uses as they are, or refuse another set of
    /// them.
    void give_weights(const Json* weights) {
        static constexpr std::string_view computed = "_FOLDED_CONST_";  // by the code itself, from the others
        std::unordered_map<std::string, at::Tensor> by_path;
        if (weights != nullptr)
            for (const Json& entry : weights->at("tensors").array())
                by_path.emplace(entry.at("name").text(), tensor(entry));
        size_t used = 0;
        bool computes = false;
        for (const auto& [name, path] : runner_->getConstantNamesToOriginalFQNs()) {
            const auto found = by_path.find(path);
            if (found != by_path.end()) {
                tensors_.emplace(name, found->second);
                ++used;
            } else if (name.rfind(computed, 0) == 0) {
                computes = true;
            } else {  // without it a call would end the process
                throw Error("artifact_invalid",
                            "prepared.json has no weight " + path + ", which " + library_ + " reads");
            }
        }
        if (used != by_path.size())
            throw Error("artifact_invalid",
                        library_ + " has no place for some of the weights in prepared.json");
        if (!tensors_.empty())
            runner_->update_constant_buffer(tensors_, /*use_inactive=*/false, /*validate_full_updates=*/false,
                                            /*user_managed=*/true);
        if (computes)
            runner_->run_const_fold(/*use_inactive=*/false);  // or the first call would, while others wait
    }

    at::Tensor tensor(const Json& entry) const {
        std::vector<int64_t> shape, stride;
        for (const Json& size : entry.at("shape").array()) shape.push_back(static_cast<int64_t>(size.size()));
        for (const Json& step : entry.at("stride").array())
            stride.push_back(static_cast<int64_t>(step.size()));
        const auto options = at::TensorOptions().dtype(dtype_of(entry.at("dtype")));
        const size_t offset = entry.at("offset").size(), bytes = entry.at("nbytes").size();
        if (bytes == 0) return at::empty_strided(shape, stride, options);
        if (shape.size() != stride.size() || offset > weights_->file.size() ||
            bytes > weights_->file.size() - offset)
            throw Error("artifact_invalid", entry.path() + " lies outside " + weights_->file.path());
        at::Tensor made = at::from_blob(weights_->file.begin() + offset, shape, stride, options);
        if (made.storage().nbytes() > bytes)
            throw Error("artifact_invalid", entry.path() + " has too few bytes");
        return made;
    }

    /// The keys of a dict in a call spec of torch, which writes them as JSON inside JSON.
    static std::vector<std::string> names_in(const Json& dict) {
        std::vector<std::string> names;
        const Json keys = Json::parse(dict.at("context").text(), dict.path() + ".context");
        for (const Json& key : keys.array()) names.push_back(key.text());
        return names;
    }

    /// The digest of a file, or "" if it is gone.
    static std::string digest_of(const std::string& path) {
        if (!std::filesystem::exists(path)) return "";
        const MappedFile file(path);
        return Sha256::hexadecimal(Sha256::of(file.begin(), file.size()));
    }

    std::string library_;
    std::string code_;                                     // the library's digest
    std::unique_ptr<CheckedFile> weights_;                 // outlives the container
    std::unordered_map<std::string, at::Tensor> tensors_;  // the container keeps their addresses
    std::unique_ptr<torch::inductor::AOTIModelContainerRunnerCpu> runner_;
};

}  // namespace slipway::detail
