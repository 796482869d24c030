# An export of each kind, the cache of compiled models, and what the tools say.
optimum-cli export neuron --model acme/bert-sentiment --batch_size 1 --sequence_length 64 --auto_cast matmul --auto_cast_type bf16 bert_neuron/
optimum-cli export neuron -m acme/bert-ner --task token-classification --batch_size 1 --sequence_length 64 --instance_type inf2 -O1 ner_neuron/
optimum-cli export neuron -m acme/bert-squad --task question-answering --batch_size 1 --sequence_length 64 --disable-validation --dynamic-batch-size squad_neuron/
optimum-cli export neuron -m acme/bert-masked --task fill-mask --batch_size 1 --sequence_length 64 --atol 0.001 --torch_dtype float32 masked_neuron/
optimum-cli export neuron -m acme/bert-swag --task multiple-choice --batch_size 1 --sequence_length 64 --num_choices 4 swag_neuron/
optimum-cli export neuron -m acme/bert --task feature-extraction --batch_size 1 --sequence_length 64 --output_hidden_states --output_attentions --inline-weights-neff features_neuron/
optimum-cli export neuron -m acme/vit --task image-classification --batch_size 1 --num_channels 3 --height 32 --width 32 vit_neuron/
optimum-cli export neuron -m acme/segformer --task semantic-segmentation --batch_size 1 --height 64 --width 64 segformer_neuron/
optimum-cli export neuron -m acme/yolos --task object-detection --batch_size 1 yolos_neuron/
optimum-cli export neuron -m acme/clip --task zero-shot-image-classification --text_batch_size 2 --image_batch_size 1 --sequence_length 16 --num_channels 3 --height 32 --width 32 clip_neuron/
optimum-cli export neuron -m acme/hubert-keywords --task audio-classification --batch_size 1 --audio_sequence_length 1200 hubert_neuron/
optimum-cli export neuron -m acme/wav2vec2-ctc --task automatic-speech-recognition --batch_size 1 --audio_sequence_length 1200 ctc_neuron/
optimum-cli export neuron -m acme/wavlm-diarization --task audio-frame-classification --batch_size 1 --audio_sequence_length 1200 diarization_neuron/
optimum-cli export neuron -m acme/wavlm-speakers --task audio-xvector --batch_size 1 --audio_sequence_length 1200 speakers_neuron/
optimum-cli export neuron -m acme/minilm --task sentence-similarity --batch_size 1 --sequence_length 64 minilm_neuron/
optimum-cli export neuron -m acme/t5 --task text2text-generation --batch_size 1 --sequence_length 64 --num_beams 4 t5_neuron/
optimum-cli export neuron -m acme/whisper --task automatic-speech-recognition --batch_size 1 --sequence_length 40 whisper_neuron/
optimum-cli export neuron -m acme/llama --task text-generation --batch_size 1 --sequence_length 128 --auto_cast_type bf16 --tensor_parallel_size 1 llama_neuron/
optimum-cli export neuron -m acme/smolvlm --task image-text-to-text --batch_size 1 --sequence_length 64 --image_size 16 smolvlm_neuron/

optimum-cli neuron cache lookup acme/llama --batch_size 1 --sequence_length 128
optimum-cli neuron cache status
