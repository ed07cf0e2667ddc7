#!/bin/sh
# Compiles every committed trace again. Usage: traces/make.sh FOLDER_OF_QWEN_EXPORTS
# The exports are qwen2.5-{0.5b,1.5b,3b}-int4-genai.onnx (onnxruntime-genai model builder; no weight files needed);
# the detector is light_resnet50.onnx of the onnx package; the 7B is its public config.json.
set -eu
here=$(dirname "$0")
llm=$1
light=$(python3 -c 'import onnx, pathlib; print(pathlib.Path(onnx.__file__).parent / "backend/test/data/light")')
for size in 0.5b 1.5b 3b; do
    bpusim compile "$llm/qwen2.5-$size-int4-genai.onnx" --quant int4 -o "$here/qwen2.5-$size-int4.trace"
done
bpusim compile --llm-config "$here/models/qwen2.5-7b.config.json" --quant int4 --context 4096 -o "$here/qwen2.5-7b-int4.trace"
bpusim compile "$llm/qwen2.5-3b-int4-genai.onnx" --quant int8 -o "$here/qwen2.5-3b-int8.trace"
bpusim compile "$llm/qwen2.5-3b-int4-genai.onnx" --quant int4 --fallback-op Sigmoid -o "$here/qwen2.5-3b-int4-fallback.trace"
bpusim compile "$light/light_resnet50.onnx" --quant int8 --activations int8 --bind gpu_0/data_0=1x3x992x992 --until r171 \
    -o "$here/resnet50-992.trace"
python3 "$here/models/wake_word.py" wake_word.onnx
bpusim compile wake_word.onnx --quant int8 --activations int8 -o "$here/wake_word.trace"
