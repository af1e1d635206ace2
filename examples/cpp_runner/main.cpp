// Serves a tower that `slipway prepare` has written, as a server in C++ would.
//
//   cpp_runner --artifact prepared --tower user --inputs inputs.pt [--libraries FOLDER] [--check all]
//              [--threads 4 --calls 1000 [--swap newer]]
//
// inputs.pt is a dict of tensors as torch.save writes it. Each output is a line: its name, shape and values.
// With
// --threads, so many threads then send the same request --calls times each, while the artifact in --swap and
// the first one take each other's place again and again; each answer must be wholly that of one of the two.

#include <ATen/Parallel.h>
#include <slipway/loader.h>
#include <torch/serialize.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using Arguments = std::map<std::string, std::string>;

Arguments parse(int count, char** values) {
    Arguments arguments = {{"artifact", ""}, {"tower", ""},   {"inputs", ""},    {"libraries", ""},
                           {"check", ""},    {"threads", ""}, {"calls", "1000"}, {"swap", ""}};
    for (int i = 1; i < count; i += 2) {
        const auto found = arguments.find(std::string(values[i]).substr(0, 2) == "--" ? values[i] + 2 : "");
        if (found == arguments.end() || i + 1 == count)
            throw std::invalid_argument(std::string("unknown option, or one without a value: ") + values[i]);
        found->second = values[i + 1];
    }
    for (const char* needed : {"artifact", "tower", "inputs"})
        if (arguments[needed].empty()) throw std::invalid_argument(std::string("--") + needed + " is needed");
    return arguments;
}

slipway::Tensors read_inputs(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    slipway::Tensors inputs;
    for (const auto& entry : torch::pickle_load(bytes).toGenericDict())
        inputs.emplace(entry.key().toStringRef(), entry.value().toTensor());
    return inputs;
}

void show(const std::string& name, const at::Tensor& output) {
    std::printf("%s [", name.c_str());
    for (int64_t axis = 0; axis < output.dim(); ++axis)
        std::printf("%s%lld", axis ? "," : "", static_cast<long long>(output.size(axis)));
    std::printf("]");
    const at::Tensor values = output.to(at::kDouble).contiguous();
    for (int64_t i = 0; i < values.numel(); ++i) std::printf(" %.9g", values.const_data_ptr<double>()[i]);
    std::printf("\n");
}

// Bit by bit, so that NaN equals NaN.
bool are_same(const slipway::Tensors& one, const slipway::Tensors& other) {
    return std::all_of(one.begin(), one.end(), [&](const auto& entry) {
        const at::Tensor mine = entry.second.contiguous(), its = other.at(entry.first).contiguous();
        return mine.sizes() == its.sizes() &&
               std::memcmp(mine.const_data_ptr(), its.const_data_ptr(), mine.nbytes()) == 0;
    });
}

// Calls from several threads, and swaps the artifact meanwhile; returns whether every answer was a whole one.
bool serve(slipway::Tower& tower, const slipway::Tensors& inputs, const Arguments& arguments,
           const slipway::Options& options) {
    const std::string &older = arguments.at("artifact"), &newer = arguments.at("swap");
    std::vector<slipway::Tensors> expected = {tower.run(inputs)};
    if (!newer.empty()) expected.push_back(slipway::load(newer, arguments.at("tower"), options).run(inputs));
    const int calls = std::stoi(arguments.at("calls")), threads = std::stoi(arguments.at("threads"));
    std::atomic<bool> swap_failed{false};
    std::atomic<int> by_older{0}, by_newer{0}, torn{0}, failed{0}, serving{threads};
    std::vector<std::thread> workers;
    for (int i = 0; i < threads; ++i)
        workers.emplace_back([&] {
            at::set_num_threads(1);  // calls share the cores, not the parts of one call
            for (int call = 0; call < calls && !swap_failed; ++call) {
                try {
                    const slipway::Tensors answer = tower.run(inputs);
                    const bool is_older = are_same(answer, expected.front());
                    const bool is_newer = !is_older && are_same(answer, expected.back());
                    ++(is_older ? by_older : is_newer ? by_newer : torn);
                } catch (const slipway::Error& error) {
                    if (failed++ == 0) std::cerr << error.code() << ": " << error.what() << '\n';
                }
            }
            --serving;
        });
    int swaps = 0;
    double longest_ms = 0;
    std::exception_ptr problem;
    try {
        while (!newer.empty() && serving > 0) {
            const auto begun = std::chrono::steady_clock::now();
            tower.swap(swaps % 2 == 0 ? newer : older);
            const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begun;
            longest_ms = std::max(longest_ms, took.count());
            ++swaps;
        }
    } catch (...) {
        problem = std::current_exception();
        swap_failed = true;
    }
    for (std::thread& worker : workers) worker.join();
    if (problem) std::rethrow_exception(problem);
    std::printf("by older %d, by newer %d, torn %d, failed %d, swaps %d, longest %.1f ms\n", by_older.load(),
                by_newer.load(), torn.load(), failed.load(), swaps, longest_ms);
    return torn == 0 && failed == 0;
}

}  // namespace

int main(int count, char** values) try {
    const Arguments arguments = parse(count, values);
    slipway::Options options;
    if (!arguments.at("libraries").empty()) options.library_folders = {arguments.at("libraries")};
    if (arguments.at("check") == "all") options.check = slipway::Check::all;
    slipway::Tower tower = slipway::load(arguments.at("artifact"), arguments.at("tower"), options);
    const slipway::Tensors inputs = read_inputs(arguments.at("inputs")), answer = tower.run(inputs);
    for (const slipway::TensorSpec& output : tower.outputs()) show(output.name, answer.at(output.name));
    return arguments.at("threads").empty() || serve(tower, inputs, arguments, options) ? 0 : 1;
} catch (const slipway::Error& error) {
    std::cerr << error.code() << ": " << error.what() << '\n';
    return 1;
} catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
}
