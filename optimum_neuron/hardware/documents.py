"""Names of the public documents that the catalogue cites.

"Neuron docs" is the AWS Neuron documentation at https://awsdocs-neuron.readthedocs-hosted.com, read as of SDK 2.32
(August 2026). Data files use these constants, so a renamed page is corrected in one place.

    >>> from optimum_neuron.hardware import documents
    >>> documents.NC_V2
    'Neuron docs, NeuronCore-v2 architecture'
"""

from __future__ import annotations

NC_V1 = "Neuron docs, NeuronCore-v1 architecture"
NC_V2 = "Neuron docs, NeuronCore-v2 architecture"
NC_V3 = "Neuron docs, NeuronCore-v3 architecture"
NC_V4 = "Neuron docs, NeuronCore-v4 architecture"

INFERENTIA = "Neuron docs, Inferentia architecture"
INFERENTIA2 = "Neuron docs, Inferentia2 architecture"
TRAINIUM1 = "Neuron docs, Trainium architecture"
TRAINIUM2 = "Neuron docs, Trainium2 architecture"
TRAINIUM3 = "Neuron docs, Trainium3 architecture"

INF1 = "Neuron docs, Amazon EC2 Inf1 architecture, instance table"
INF2 = "Neuron docs, Amazon EC2 Inf2 architecture, instance table"
TRN1 = "Neuron docs, Amazon EC2 Trn1/Trn1n architecture, instance table"
TRN2 = "Neuron docs, Amazon EC2 Trn2 architecture, instance specifications"
TRN3 = "Neuron docs, Amazon EC2 Trn3 architecture, UltraServer specifications"
TRN2_3XLARGE = "neuronx-distributed-inference repository, contributed model READMEs"

NKI_V2 = "Neuron docs, NKI, Trainium/Inferentia2 architecture guide"
NKI_V3 = "Neuron docs, NKI, Trainium2 architecture guide"
NKI_V4 = "Neuron docs, NKI, Trainium3 architecture guide"
NKI_DMA = "Neuron docs, NKI, DMA bandwidth guide"
NKI_ALLOCATION = "Neuron docs, NKI, direct allocation guide"
NKI_ISA = "Neuron docs, NKI, estimated instruction costs of nki.isa (Neuron 2.2x)"
NKI_LNC = "Neuron docs, NKI, logical NeuronCores"
NKI_PERFORMANCE = "Neuron docs, NKI, performance guide"
NKI_SCHEDULING = "Neuron docs, NKI, scheduling guide"
NKI_DMA_OVERVIEW = "Neuron docs, NKI, introduction to direct memory access"
NKI_DTYPES = "Neuron docs, NKI, nki.language data types"

DATA_TYPES = "Neuron docs, Neuron features, data types"
ROUNDING = "Neuron docs, Neuron features, rounding modes"
LNC = "Neuron docs, Neuron features, Logical NeuronCore configuration"
COMPILER_CLI = "Neuron docs, neuronx-cc CLI reference"
INF1_OPERATORS = "Neuron docs, torch-neuron supported operators"
INF1_COMPILER_CLI = "Neuron docs, neuron-cc CLI reference"
NEURONCORE_PIPELINE = "Neuron docs, Neuron features, NeuronCore Pipeline"
ERROR_EARG001 = "Neuron docs, neuronx-cc error code NCC_EARG001"
ERROR_FP8 = "Neuron docs, neuronx-cc error codes NCC_EVRF051 and NCC_EVRF052"

TORCH_VARIABLES = "Neuron docs, PyTorch NeuronX environment variables, NEURON_RT_VISIBLE_CORES"
RUNTIME_CONFIG = "Neuron docs, Neuron Runtime configuration"
RUNTIME_TOPOLOGY = "Neuron Runtime, message of nrt_load_collectives (quoted in huggingface/optimum-neuron#619)"
SCHEDULER = "Neuron docs, Neuron scheduler extension, device allocation by instance type"
INTRANODE = "Neuron docs, Neuron Runtime, intra-node collective communications"
INTERNODE = "Neuron docs, Neuron Runtime, inter-node collective communications"
NXDI_TUTORIALS = "Neuron docs, NxD Inference and vLLM Neuron tutorials"

RESERVED_PRICES = "Neuron docs, benchmark CSV files, RI-effective hourly price in us-east-1"
ON_DEMAND_PRICES = "Amazon EC2 on-demand pricing, Linux, us-east-1"

NOT_PUBLISHED = "not published"
