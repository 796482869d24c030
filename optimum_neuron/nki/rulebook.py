"""The rules that kernels keep: for each the kind of it, what an error says, and what to do.

`require` and `refuse` of `core.py` raise the error of a broken rule: `require(op.reduce, Rule.REDUCTION, op=op)`.
Texts name values and their attributes, as `{of.name}`; `{names:list}` lists one. Kinds are the `rule` of errors.
`docs/nki.md` has the rules; `tools/generate_docs.py` writes it.
"""

from __future__ import annotations

import enum


class Rule(enum.Enum):
    """One rule, as `kind: message => hint` with the names of values."""

    kind: str
    """What errors have as `rule`."""
    message: str
    remedy: str
    """The hint of errors."""

    def __init__(self, text: str) -> None:
        head, _, hint = " ".join(text.split()).partition(" => ")
        self.kind, _, self.message = head.partition(": ")
        self.remedy = hint

    CUSTOM_OPERATOR = """absent: The custom operator {function_name} of {lib_file_name} is a program of GpSimd, which
    is not simulated.
    => Write it with the other instructions."""
    ADDRESS = """address: {storage.name} at partition {place.partition} and byte {place.byte} ends at byte {last} of a
    partition, and {storage.buffer.value} has {room}.
    => Give (first partition, byte) within SBUF or PSUM; HBM tensors have no address."""
    ALLOCATED_ADDRESS = """address: A tile in {of.buffer.value} is allocated at {problem}.
    => Correct the base address, or use smaller tiles."""
    ALLOCATOR_RESULT = """address: The allocation of block {block} in {of.buffer.value} is {place!r}.
    => Return {names}."""
    AFFINE_INDICES = """affine: The index tiles name elements that have no one step for each dimension.
    => Index with sums of nl.arange times numbers, or gather with indices in memory."""
    ASSIGNMENT = """assignment: {of.name} cannot be assigned to: a kernel writes memory with instructions.
    => Use nisa.tensor_copy, nisa.dma_copy or nl.store."""
    INDEX_TILE_ASSIGNMENT = """assignment: An index tile cannot be assigned to.
    => Make a tile of it with nisa.iota, and assign to that."""
    COLLECTIVE_DIM = """axis: {instruction} collective_dim={axis}.
    => Use {choices}."""
    CUMSUM = """axis: cumsum of shape {shapes[0]} into {shapes[1]} along axis {axis}.
    => Pass tensors of two dimensions of one shape, and axis=1."""
    GATHER_AXIS = """axis: gather_flattened axis={axis}: each partition gathers from its own elements.
    => Leave axis out."""
    REDUCED_AXES = """axis: tensor_reduce axis={of.axes} of a tile of shape {of.data.shape}: only the last dimensions
    are reduced, and not partitions.
    => Name the last ones; nisa.nc_transpose or a matmul with ones reduces partitions."""
    REDUCED_PARTITIONS = """axis: A reduction of a tile of shape {x.shape} over {axis}, of which 0 are the partitions.
    => Transpose the tile, or multiply by ones with nisa.nc_matmul."""
    BLOCK_INDEX = """block: {of.name} of shape {of.shape} has {count} dimensions of blocks in front of the partitions,
    which {key!r} does not name.
    => Give a number within the sizes for each of them: functions take one tile."""
    GATHER_INDEX = """bounds: {opcode}: index {index} is outside of the {size} elements of a partition.
    => Use indices from 0 to {last}."""
    INDEX = """bounds: Index {index} is outside of dimension {dim} of {tensor}, which has {size} elements.
    => Use an index from 0 on that is smaller than {size}."""
    INDEX_TILE_BOUNDS = """bounds: Indices {first} to {last} leave dimension {dim} of {tensor}, which has {size}
    elements.
    => Pass a mask, such as mask=(i_p < size)."""
    INDICES = """bounds: Indices are outside of {of.name}, whose shape is {of.storage.shape}.
    => Correct the indices, or pass oob_mode=nisa.oob_mode.skip."""
    METADATA_BOUNDS = """bounds: {instruction} reaches element {element} of its {what}, which has {size}.
    => Correct counts and places of metadata_tensor."""
    PATTERN_BOUNDS = """bounds: The access pattern {pattern} from {first} on reaches element {last} of {tensor}, which
    has {size}.
    => Steps and counts are of elements of the whole tensor."""
    SHUFFLE_PARTITION = """bounds: nc_stream_shuffle reads partition {index} of src, which has {size}.
    => Name partitions of src in shuffle_mask, or 255."""
    SLICE = """bounds: The slice {start}:{stop}:{step} leaves dimension {dim} of {of.name}, which has {size} elements.
    => Tiles are not clipped as NumPy clips slices: end it at the size, or use a smaller tile."""
    STREAM_BOUNDS = """bounds: Elements {first} to {last} leave {storage.name}, which has {elements}.
    => Trace the kernel again."""
    REGISTER_BRANCH = """branch: A branch depends on a register.
    => Use `while register:`, or nl.where."""
    TENSOR_BRANCH = """branch: A branch or a loop depends on the elements of a tensor, which are unknown when a
    kernel is compiled.
    => Compute both sides and choose with nl.where or a mask; compare a tensor that may be missing with None."""
    BOTH_IN_PSUM = """buffer: {opcode}: {names:list} are both in psum, and one instruction reads one of them there.
    => Copy one to sbuf with nisa.tensor_copy."""
    GPSIMD_PSUM = """buffer: {opcode} {operand} is in psum, which the gpsimd engine cannot access.
    => Copy it to sbuf with nisa.tensor_copy, or use another engine."""
    MEMORY = """buffer: {opcode} {operand} is in {tile.buffer.value}, which the {engine.name} engine does not access
    here.
    => Move it to one of {choices:list} first."""
    PLACE = """buffer: nl.{instruction} needs a tensor in {place} as {operand}, and got {value!r}.
    => Move tiles on the chip with nl.copy or nisa.tensor_copy; load and store reach HBM."""
    TRANSPOSE_MEMORY = """buffer: nc_transpose on the tensor engine reads sbuf and writes psum, not
    {of.data.buffer.value} and {of.dst.buffer.value}.
    => Move the tiles, or use the vector engine for 32 by 32 elements."""
    CAPACITY = """capacity: A tensor of shape {sizes} of {kind} needs {needed} bytes of each partition, and
    {place.value} of {core.spec.name} has {capacity}.
    => Use a smaller tile."""
    CHANNEL_IDS = """channel: {instruction} channel_ids={numbers}.
    => Use consecutive numbers from 0, at most {maximum}."""
    CHANNEL_LISTS = """channel: {instruction} takes one list of one tensor for each of the {count} channels.
    => Pass [[x]] for one channel, [[x], [y]] for two."""
    EXCHANGED = """collective_io: A collective uses {tensor}, which is an argument or a result of the kernel.
    => Copy it from or to another tensor with nisa.dma_copy, and exchange that one."""
    CORE_DEADLOCK = """deadlock: {opcode} on core {core} waits forever: {cause}.
    => Let both cores execute the same exchanges and barriers."""
    DEADLOCK = """deadlock: {instruction} on rank {core.rank_id} waits forever: {absent} of the group {group} did not
    call it.
    => Let all ranks of a group call the same collectives in the same order, and launch all of them."""
    DEPENDENCY = """dependency: {of._opcode} cannot wait for {producer!r}.
    => Pass what functions of nki.isa returned for other instructions of the same core."""
    DEPENDENCY_IN_LOOP = """dependency: {of._opcode} waits for {producer._opcode} in a loop of the device that it is
    not in.
    => Wait in the same loop; a wait for an instruction before the loop is possible too."""
    CORE_DTYPE = """dtype: {core.spec.name} has no {dtype}.
    => Use one of {choices:list}, or another target."""
    DTYPE = """dtype: {opcode} {operand} is {tile.dtype}.
    => Use one of {choices:list}."""
    HOST_DTYPE = """dtype: The bytes of {own.name} cannot be read as {row.name} here.
    => The host has no such format, or NKI_PRECISE_FP=0 keeps floats in float32: copy the tensor to convert it."""
    MATMUL_DTYPES = """dtype: nc_matmul multiplies {of.stationary.dtype} by {of.moving.dtype}.
    => If one is float32 or tfloat32, make both."""
    SAME_DTYPE = """dtype: {opcode} converts no dtypes: {dtypes}.
    => Give all the same dtype."""
    SELECT_DTYPE = """dtype: select_reduce dtype={dtype} for a dst of {target.dtype}.
    => Leave dtype out: dst has one."""
    BITS_ENGINE = """engine: tensor_scalar works on bits on the vector engine only.
    => Leave engine out."""
    COLUMNS_ENGINE = """engine: The {engine} engine does not choose columns of {of.name} by offsets.
    => Gather with nisa.tensor_copy, or choose rows of a tensor in HBM with vector_select."""
    COPY_ENGINE = """engine: tensor_copy does not run on the scalar engine of NeuronCore-v2.
    => Use nisa.activation with op=nl.copy."""
    ENGINE = """engine: {of.OPCODE} does not run on the {asked.name} engine.
    => Use one of {of.ENGINES:list} in nisa.engine."""
    ACTIVATION_BIAS = """generation: activation bias={of.bias}: the scalar engine of NeuronCore-v2 takes a vector.
    => Give a tile of shape (partitions, 1)."""
    DMA_HARDWARE_DESCRIPTORS = """generation: {opcode} dge_mode=hwdge needs NeuronCore-v3.
    => Use nisa.dge_mode.unknown."""
    DMA_PRIORITY = """generation: {opcode} priority={priority}: levels 0 to 3 exist from NeuronCore-v4 on.
    => Leave priority out, or use trn3 and a level from 0 to 3."""
    DOUBLE_ROW_GENERATION = """generation: nc_matmul perf_mode=double_row needs NeuronCore-v3.
    => Leave perf_mode out."""
    ENGINE_GENERATION = """generation: {of.OPCODE} on the {engine.name} engine needs NeuronCore-v{needed}.
    => Leave engine out."""
    GENERATION = """generation: {of.OPCODE} needs NeuronCore-v{of.MIN_GENERATION}, and {core.target.name} has
    {core.spec.name}.
    => Set NEURON_PLATFORM_TARGET_OVERRIDE to a newer target, or use other instructions."""
    INDIRECT_GENERATION = """generation: indirect needs NeuronCore-v4, and {core.target.name} has {core.spec.name}.
    => Use nisa.nc_n_gather, or nisa.local_gather for groups of partitions."""
    GRID = """grid: {kernel}{grid} asks for more than one number of cores, or for more than the {most} that a logical
    core of {target} can have.
    => Use kernel[n] with n of at most {most}; without brackets it runs on one core."""
    TWO_CORES = """grid: {opcode} in a launch on the grid {core.grid.shape}: it needs two cores.
    => Launch the kernel on both cores, with kernel[2]."""
    INDIRECT_COLUMNS = """indirect: indirect of {count} columns of {of.name}, of shape {of.shape} in
    {of.buffer.value}, by offsets of shape {index.shape} and dtype {index.dtype} in {index.buffer.value}.
    => Both have two dimensions and the same partitions on the chip; the offsets are uint16 in SBUF."""
    INDIRECT_VIEW = """indirect: Indices in memory choose elements of {of.name}, and its bytes are read as another
    dtype.
    => Take the view with the dtype first."""
    PART_OF_INDIRECT = """indirect: A part of {tensor}, or its elements in another order, where indices in memory
    choose the elements.
    => Take the part first, and choose by indices then; or give the access pattern of the part."""
    SCATTERED_RESULT = """indirect: {opcode} {operand} is scattered by offsets in memory, which is not simulated.
    => Write a tile, and scatter it with nisa.tensor_copy."""
    SECOND_INDIRECT = """indirect: Indices in memory choose elements of {tensor} already, and a view has one such
    choice.
    => Copy the elements of the first one with nisa.dma_copy."""
    SELECTED_ROWS = """indirect: vector_select of dimension {dim} of {of.name} in {of.buffer.value}, by indices of
    shape {indices.shape} in {indices.buffer.value}.
    => It is of dimension 0 of a tensor in HBM, and takes one index for each partition, in SBUF."""
    REGISTER_LOOP = """loop: A loop of the compiler has a bound in a register.
    => Use nl.dynamic_range."""
    MASK_CONDITION = """mask: A mask of index tiles is joined with `and`, `or`, or `not`, or is a condition of Python.
    => Join masks with & and |, each comparison in parentheses."""
    MASK_SHAPE = """mask: A mask of shape {values.shape} for elements of shape {shape}.
    => Make the mask from the index tiles of the elements."""
    MASK_WITHOUT_BLOCK = """mask: {instruction} with a mask that leaves no block.
    => Use a mask that compares each index tile with a number, or nl.where before the reduction."""
    COLLECTIVES_DIFFER = """mismatch: Ranks of the group {group} call different collectives: rank {ranks[0]} calls
    {mine.opcode}{mine.terms} at {mine.line}, and rank {ranks[1]} calls {post.opcode}{post.terms} at {post.line}.
    => Let all ranks of a group call the same collectives, with the same sizes, dtypes and operator."""
    ATTENTION_KIND = """operand: attention_isa_kernel kernel_name={name!r}, sliding_window={window}.
    => Use {choices[0]}, or {choices[1]}, which may have a window."""
    CHOICE = """operand: {opcode} {operand} is {value}, which it does not take.
    => Use one of {choices:list}."""
    COLLECTIVE_TENSORS = """operand: {instruction} {problem[0]}.
    => {problem[1]}"""
    COMMAND_WITHOUT_OPERATOR = """operand: activation reduce_cmd={of.reduce_cmd.name} needs reduce_op.
    => Pass reduce_op=nl.add."""
    LOOP_CONDITION = """operand: The body of a while_loop returned {register!r}.
    => Return the register with the next condition."""
    LOOP_REGISTER = """operand: {instruction} writes {register!r}, which is the number of a loop.
    => Use the result of nisa.register_alloc."""
    LOOP_STEP = """operand: A loop of the device with step={step}.
    => Give a positive number that is known before the kernel runs."""
    PROBABILITY = """operand: dropout prob={of.prob}.
    => Give a probability from 0 to 1."""
    RANDOM_RANGE = """operand: rand2 from {of.low} to {of.high}.
    => Give a min that is smaller than max."""
    REDUCE_INIT = """operand: tensor_scalar_reduce takes reduce_init with reduce_cmd=load_reduce, and only with it.
    => Give both, or neither."""
    REGISTER = """operand: {instruction} {operand} is {value!r}, and no register.
    => Use the result of nisa.register_alloc."""
    SECOND_OPERATOR = """operand: tensor_scalar has one of op1 and operand1.
    => Give both, or neither."""
    SHUFFLE_MASK = """operand: nc_stream_shuffle shuffle_mask={mask}.
    => Give 32 numbers, each a partition from 0 to 31, or 255 to keep what is there."""
    TENSOR_OPERAND = """operand: {instruction.OPCODE} needs a tensor as {operand}, not {kind}.
    => Create it with nl.ndarray."""
    TILE_OPERAND = """operand: nl.{instruction} computes tiles on the chip, and got {value!r}.
    => Load it with nl.load first."""
    ACTIVATION = """operator: {opcode} op={op!r} is no activation function.
    => Use one of {choices:list}."""
    ARITHMETIC = """operator: {opcode} takes no operator on bits, such as {operator!r}.
    => Use nisa.tensor_scalar or nisa.tensor_tensor."""
    ATOMIC_OPERATOR = """operator: nl.atomic_rmw op={op!r}.
    => Use np.add."""
    COLLECTIVE_OPERATOR = """operator: {instruction} op={operator!r}.
    => Use nl.add, nl.minimum or nl.maximum."""
    DMA_OPERATOR = """operator: dma_copy dst_rmw_op={dst_rmw_op!r} with oob_mode={oob_mode!r}.
    => Use np.add with oob_mode.error."""
    MIXED_OPERATORS = """operator: {opcode} mixes operators on bits with arithmetic: {names}.
    => Use two instructions."""
    REDUCTION = """operator: {opcode} op={op!r} reduces nothing.
    => Use nl.add, nl.maximum, nl.minimum, nl.multiply or an operator on bits."""
    UNARY_OPERATOR = """operator: tensor_tensor op={of.op!r} takes one operand.
    => Use nisa.activation, or an operator of two operands."""
    UNKNOWN_OPERATOR = """operator: {parameter}={op!r} is no operator of the engines.
    => Use one of nki.language, such as nl.add or nl.exp."""
    FIRST_DIM = """partition: {action} of dimension {dim} of {of.name}, whose shape is {of.shape}.
    => The partition dimension of an on-chip tensor stays first."""
    PARTITIONS = """partition: {opcode} {operand} partition dimension {partitions} exceeds maximum 128.
    => Split it into tiles of 128 partitions."""
    PARTITION_DIMS = """partition: A tensor of shape {shape} has {count} partition dimensions.
    => Mark one dimension with nl.par_dim."""
    PERMUTATION = """partition: {of.name} has {of.ndim} dimensions, which cannot be permuted by {dims}.
    => Name each dimension once; on the chip, keep dimension 0 first (nisa.nc_transpose moves it), as where indices
    choose the rows."""
    TILE_PARTITIONS = """partition: A tensor of shape {sizes} in {place.value}: partition dimension {partitions} exceeds
    maximum 128.
    => Put at most 128 in dimension 0, and the rest in another dimension."""
    PARTITION_STEP = """partition_step: {opcode} {operand} covers {tile.num_partitions} partitions with a step of
    {tile.strides[0]} elements, and a partition has {per_partition}: an engine reaches partitions that follow each
    other.
    => Copy the partitions with nisa.dma_copy, or arrange the data so that they follow each other."""
    PATTERN_PARTITION_STEP = """partition_step: The access pattern {pattern} of {of.name} steps {pattern[0][0]}
    elements from one partition to the next, and a partition has {per_partition}.
    => Partitions follow each other: give that number of elements as the first step."""
    REARRANGEMENT = """pattern: {of.name} of shape {of.shape} cannot be rearranged from {source} to {target}: {problem}.
    => Name each dimension once in both patterns, and give sizes only of names."""
    PSUM_BANK = """psum_bank: {opcode} {operand} covers bytes {first} to {last} of a partition of PSUM, and a bank has
    {bank}.
    => Use at most {most} elements in one bank, and start tiles at banks."""
    ACCESS_DIMS = """rank: {opcode} {operand} has {tile.ndim} dimensions, and an access pattern has at most 5.
    => Join dimensions with flatten_dims, or split the instruction."""
    DIM = """rank: {action} of dimension {dim} of {of.name}, whose shape is {of.shape}.
    => Name a dimension it has."""
    INDEX_TILE_DIMS = """rank: {tensor} is indexed by an index tile of one dimension.
    => Add a dimension: nl.arange(64)[:, None]."""
    MIXED_INDICES = """rank: {of.name} of shape {of.shape} is indexed by index tiles in some dimensions only.
    => Give an index tile or a number for each dimension."""
    NUM_INDICES = """rank: {given} indices for {of.name}, which has {of.ndim} dimensions.
    => Its shape is {of.shape}: give at most {of.ndim} indices."""
    TILE_DIMS = """rank: A tensor of shape {shape} in {place.value}: tensors on the chip have at least 2 dimensions,
    partitions and elements.
    => Add a dimension of size 1."""
    PERMUTE_PAIRS = """replica_group: collective_permute source_target_pairs={pairs} in a world of {core.world.size}
    ranks.
    => Name each rank at most once as a source and once as a target."""
    REPLICA_GROUP = """replica_group: {instruction}: the lists {lists} of ranks {problem[0]}.
    => {problem[1]}"""
    ALL_TO_ALL_PARTS = """shape: all_to_all splits {rows} rows into {parts} parts.
    => Give a multiple of the ranks."""
    NO_RESULT = """result: The kernel {kernel} returned nothing and wrote no input.
    => Return the tensors in nl.shared_hbm that it wrote."""
    RESULT_ON_CHIP = """result: The kernel returned {of.name}, which is in {of.buffer.value}.
    => Copy it to a tensor in nl.shared_hbm, and return that."""
    ASSERTED_SHAPE = """shape: {of.name} has the shape {of.shape}, not {wanted}.
    => Correct the shape, or the tile."""
    KERNEL_SHAPES = """shape: {kernel} gets tensors of the shapes {shapes}.
    => {layout}"""
    BROADCAST = """shape: nl.{instruction} of shapes {shapes}, which do not broadcast.
    => Give sizes that are equal or 1."""
    COLLECTIVE_SHAPE = """shape: {instruction} of a source of shape {source.shape} yields {wanted} here, and the
    result has the shape {target.shape}.
    => Correct the result, or the sizes of the group."""
    COLUMNS_SHAPE = """shape: {of.shape[1]} columns of {of.name} for {of.shape[0]} partitions on the {engine} engine,
    whose groups of {group} partitions have {offsets} offsets each in {index.name}.
    => Pass num_elem, at most {group} times the columns of the index, and a multiple of {group} partitions."""
    CONTRACTION = """shape: nc_matmul contracts {of.stationary.num_partitions} partitions of stationary with
    {of.moving.num_partitions} of moving.
    => The contracted dimension is the partition dimension of both: make them equal."""
    DOUBLE_ROW_SHAPE = """shape: nc_matmul {name} has the shape {tile.shape}, and double_row needs [partitions, 2,
    columns].
    => Put the two rows of a partition in dimension 1."""
    GENERATOR_STATE = """shape: {of.OPCODE} {of.MAIN} has the shape {of.tile.shape}, and a lane of the {engine.name}
    engine has {words} words.
    => Give it {words} elements in each partition."""
    INDEX_PATTERN = """shape: {opcode} pattern={pattern} has {count} elements, and a partition of dst has
    {tile.elements_per_partition}.
    => Give at most 4 pairs [step, count] whose counts multiply to the elements of a partition."""
    METADATA = """shape: {instruction} metadata_tensor is {tensor.dtype} of shape {tensor.shape}.
    => Give uint32 of shape {shape}: counts and places to send, counts to receive{rest}."""
    ONE_ELEMENT = """shape: {of.name} has {of.size} elements where one is needed.
    => Take one element of it."""
    MULTIPLE = """shape: {opcode} {operand} has {size} {what}, no multiple of {step}.
    => Pad it to a multiple of {step}."""
    REARRANGED_SIZES = """shape: Dimension {dim} of {tensor} has {size} elements, which {names:list} with the sizes
    {sizes} does not have.
    => Give the sizes of all but one name of each group; their product divides the dimension."""
    REDUCED_RESULT = """shape: tensor_reduce of {of.data.shape} over {of.axes} leaves {kept} elements, and dst has the
    shape {of.dst.shape}.
    => Give dst the sizes that are not reduced."""
    RESHAPE = """shape: {of.name} of shape {of.shape} cannot have the shape {wanted}.
    => Keep the number of elements, and on the chip the number of partitions."""
    RESULT = """shape: {opcode} of {shapes:list} yields {wanted}, and {operand} has the shape {dst.shape}.
    => Give it {wanted[0]} partitions of {wanted[1]} elements."""
    SAME_PARTITIONS = """shape: {opcode}: {first} has {head.num_partitions} partitions, and {name} has
    {tile.num_partitions}.
    => Give both the same partitions."""
    SAME_ELEMENTS = """shape: {opcode}: src has {src.size} elements and dst has {dst.size}.
    => Give both as many: src is {src.shape}, dst is {dst.shape}."""
    SAME_SIZE = """shape: {opcode}: {first} has {head.extent[0]} partitions of {head.extent[1]} elements, and {name}
    has {tile.extent[0]} of {tile.extent[1]}.
    => Give both the same size: {first} is {head.shape}, {name} is {tile.shape}."""
    SCALES = """shape: {opcode} {operand} has the shape {scale.shape}: {packed.shape} needs {needed} partitions of
    {packed.elements_per_partition} scales.
    => The scales of each 32 partitions are in the first four of 32."""
    SEQUENCE_BOUNDS = """shape: sequence_bounds of {of.segment_ids.shape} writes one partition, and dst is
    {of.dst.shape}.
    => Give segment_ids one partition, and dst the shape (1, 2, {size})."""
    SQUEEZE = """shape: Dimension {dim} of {of.name} has {size} elements and cannot be removed.
    => Use select to take one of them."""
    VECTOR = """shape: {opcode} {operand} has the shape {value.shape}: a vector has one element for each of the
    {data.num_partitions} partitions of data.
    => Give a number or a tile of shape ({data.num_partitions}, 1)."""
    START_PARTITION = """start_partition: {opcode} {operand} covers {count} partitions from {start} on, which an access
    cannot.
    => Start at one of {places}: more than 64 partitions start at 0, more than 32 at 0 or 64, fewer at a multiple of
    32, and scales at 0, 4, 8, or 12 of each 32."""
    COLLECTIVE_IN_STREAM = """stream: A kernel with collectives cannot be part of a model that is compiled.
    => Call torch.distributed between kernels, or run it with nki.launch_ranks."""
    EXCHANGE_IN_STREAM = """stream: {opcode} between programs of a kernel cannot be part of a model that is compiled.
    => Reduce within one program, or in PyTorch."""
    OPERAND_IN_STREAM = """stream: {instruction} {operand}={value!r} cannot be part of a stream of instructions.
    => Pass a tile, a number, or a name of nki.language or nki.isa."""
    STREAM = """stream: {problem}
    => Trace the kernel again."""
    ELEMENT_START = """strides: Byte {size_bytes} of {of.name} is no begin of an element of {row.name}.
    => Begin at a multiple of the dtype's size."""
    RESHAPE_STRIDES = """strides: {of.name} with strides {of.strides} cannot have the shape {wanted} without a copy.
    => Copy it to a contiguous tensor first."""
    VIEW = """strides: {of.name} of shape {of.shape} with strides {of.strides} is read as {row.name}.
    => The last dimension lies in one piece, whose bytes are a multiple of {row.size_bytes}."""
    ARRAY_TILE = """tile_size: nc_matmul tile_position={of.tile_position} does not start a tile of {of.tile_size}.
    => Start at multiples of the tile, within 128 by 128."""
    MAXIMUM = """tile_size: {opcode} {what} {value} exceeds maximum {maximum}.
    => Split it into instructions of at most {maximum}."""
    SEARCH_SIZE = """tile_size: {opcode} searches 8 to {maximum} elements of a partition, and got {value}.
    => Pad the tile, or split it and search the results."""
    TOPK_SIZE = """tile_size: topk selects {of.k} of n={of.n} elements, and a group of src has room for {room}.
    => Use an n from 8 to 65535 that fits, and at most n and 32767 results."""
    ACCUMULATORS = """uninitialized: The accumulators of the {engine} engine are read before an instruction filled
    {partitions} of them.
    => Pass reduce_cmd=nisa.reduce_cmd.reset_reduce first."""
    UNWRITTEN = """uninitialized: {missing} of the {of.size} elements of {of.name} that are read here were never
    written.
    => Write them first, with nisa.memset for instance, or read only what was written."""
    UNWRITTEN_REGISTER = """uninitialized: A register is read that nothing wrote.
    => Give nisa.register_alloc a number, or use nisa.register_move or nisa.register_load."""
    REGISTER_IN_STREAM = """values: register_load in a kernel that is traced: what depends on the register would hold
    for one value.
    => Use masks or indirect access patterns, or call the kernel outside of compiled models."""
    VALUES_IN_STREAM = """values: The kernel {kernel.function.__name__} asks for values of a tensor while it is
    traced: {reason}
    => A compiled kernel may depend on sizes and on arguments that are no tensors. Use masks or indirect access
    patterns, or call the kernel outside of compiled models."""
