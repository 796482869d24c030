# The simulator and its commands: docker build -t optimum-neuron-sim . && docker run --rm optimum-neuron-sim neuron doctor
FROM python:3.12-slim

# Host code and the device "neuron" are compiled on the machine that runs them.
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*

# The build for the CPU: torch's default wheel brings several GB of CUDA libraries.
RUN pip install --no-cache-dir "torch>=2.13,<2.14" --index-url https://download.pytorch.org/whl/cpu

WORKDIR /src
COPY LICENSE README.md pyproject.toml ./
COPY optimum ./optimum
COPY optimum_neuron ./optimum_neuron
COPY sdk ./sdk
COPY sdk_vllm ./sdk_vllm
COPY sdk_xla ./sdk_xla
RUN pip install --no-cache-dir ".[checkpoints,training,vision]" ./sdk ./sdk_vllm ./sdk_xla

RUN useradd --create-home neuron
USER neuron
WORKDIR /home/neuron
RUN python -m optimum_neuron.device.build

# Optional: --build-arg MODEL=smollm2 exports a model to /home/neuron/model, with its host code.
ARG MODEL=""
ARG SEQUENCE_LENGTH=512
RUN if [ -n "$MODEL" ]; then \
      optimum-cli export neuron -m "$MODEL" --sequence_length "$SEQUENCE_LENGTH" --precompile model; \
    fi

ENTRYPOINT ["optimum-cli"]
CMD ["neuron", "doctor"]
