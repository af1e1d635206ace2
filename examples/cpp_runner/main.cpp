// Runs a published tower on one file of inputs, as a server in C++ would.
//
//   cpp_runner --package user/aoti/aoti_model.pt2 --libraries <site-packages>/fbgemm_gpu
//              --inputs inputs.pt [--weights newer/user/aoti/aoti_model.pt2]
//
// A tower of two packages is named by two --package, the sparse one first. inputs.pt is a dict of tensors as
// torch.save writes it, in the order of the manifest's inputs. Each output is a line: its shape, and its values.

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/serialize.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace fs = std::filesystem;
using torch::inductor::AOTIModelPackageLoader;

namespace {

struct Arguments {
    std::vector<std::string> packages;
    std::vector<std::string> weights;  // of newer packages, one for each of `packages`
    std::string libraries;
    std::string inputs;
};

Arguments parse(int count, char** values) {
    Arguments arguments;
    for (int i = 1; i + 1 < count; i += 2) {
        const std::string option = values[i], value = values[i + 1];
        if (option == "--package") arguments.packages.push_back(value);
        else if (option == "--weights") arguments.weights.push_back(value);
        else if (option == "--libraries") arguments.libraries = value;
        else if (option == "--inputs") arguments.inputs = value;
        else throw std::invalid_argument("unknown option " + option);
    }
    if (arguments.packages.empty() || arguments.inputs.empty())
        throw std::invalid_argument("--package and --inputs are needed");
    if (!arguments.weights.empty() && arguments.weights.size() != arguments.packages.size())
        throw std::invalid_argument("give --weights for every --package, or for none");
    return arguments;
}

// What the manifest calls op_libraries: whoever loads a package must have loaded them before.
void load_operators(const std::string& folder) {
    if (folder.empty()) return;
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder))
        if (entry.path().extension() == ".so") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const auto& file : files)
        if (dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr)
            throw std::runtime_error(dlerror());
}

std::vector<at::Tensor> read_inputs(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    std::vector<at::Tensor> inputs;
    for (const auto& entry : torch::pickle_load(bytes).toGenericDict())  // keeps the order it was written in
        inputs.push_back(entry.value().toTensor());
    return inputs;
}

// Puts the weights of a newer package into a loaded one, whose code stays. While they are copied the old ones
// serve; the swap is what takes effect. Refused where the two packages have other constants.
void take_weights(AOTIModelPackageLoader& loader, const std::string& newer_path) {
    AOTIModelPackageLoader newer(newer_path);
    auto mine = loader.get_runner()->extract_constants_map(/*use_inactive=*/false);
    std::unordered_map<std::string, at::Tensor> weights;
    for (const auto& [name, tensor] : newer.get_runner()->extract_constants_map(/*use_inactive=*/false)) {
        const auto own = mine.find(name);
        if (own == mine.end() || own->second.sizes() != tensor.sizes() || own->second.dtype() != tensor.dtype())
            throw std::runtime_error("the newer package has another " + name + ": load it as a whole");
        weights.emplace(name, tensor.clone());  // a view's whole storage would be copied
    }
    if (weights.size() != mine.size())
        throw std::runtime_error("the newer package lacks constants: load it as a whole");
    loader.load_constants(weights, /*use_inactive=*/true, /*check_full_update=*/true);
    loader.get_runner()->swap_constant_buffer();
}

void show(const at::Tensor& output) {
    std::printf("[");
    for (int64_t axis = 0; axis < output.dim(); ++axis)
        std::printf("%s%lld", axis ? "," : "", static_cast<long long>(output.size(axis)));
    std::printf("]");
    const at::Tensor values = output.to(at::kCPU, at::kDouble).contiguous();
    for (int64_t i = 0; i < values.numel(); ++i) std::printf(" %.9g", values.const_data_ptr<double>()[i]);
    std::printf("\n");
}

}  // namespace

int main(int count, char** values) try {
    // Before anything is loaded: without it a package reads past the end of inputs that contradict each other.
    setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", /*overwrite=*/1);
    const Arguments arguments = parse(count, values);
    load_operators(arguments.libraries);
    std::vector<std::unique_ptr<AOTIModelPackageLoader>> chain;
    for (size_t i = 0; i < arguments.packages.size(); ++i) {
        chain.push_back(std::make_unique<AOTIModelPackageLoader>(arguments.packages[i]));
        if (!arguments.weights.empty()) take_weights(*chain.back(), arguments.weights[i]);
    }
    std::vector<at::Tensor> tensors = read_inputs(arguments.inputs);
    for (const auto& package : chain) tensors = package->run(tensors);
    for (const auto& output : tensors) show(output);
    return 0;
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
