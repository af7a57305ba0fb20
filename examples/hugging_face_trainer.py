"""AdaHB in the Trainer of Hugging Face transformers, on a tiny language model without a download.

`optimizer_cls_and_kwargs` lets the Trainer make the optimizer, and leave biases and normalisations
out of weight decay.  Its own default is a learning rate that falls linearly to zero; AdaHB has a
schedule, so the rate it is given stays constant.

    python examples/hugging_face_trainer.py
"""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from adahb import AdaHB

LENGTH = 32


def sentences(count):
    """Made-up text: who does what to whom, as bytes."""
    generator = torch.Generator().manual_seed(0)
    who, does = ("the cat", "a dog", "one bird", "my fish"), ("sees", "likes", "hears")
    for _ in range(count):
        i, j, k = (int(torch.randint(n, (), generator=generator)) for n in (4, 3, 4))
        yield f"{who[i]} {does[j]} {who[k]}.".ljust(LENGTH)


def main():
    set_seed(0)
    texts = [list(text.encode()) for text in sentences(256)]
    data = [{"input_ids": text, "labels": text} for text in texts]
    config = GPT2Config(
        vocab_size=128,
        n_positions=LENGTH,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=GPT2LMHeadModel(config),
            args=TrainingArguments(
                output_dir=folder,
                num_train_epochs=8,
                per_device_train_batch_size=16,
                lr_scheduler_type="constant",
                weight_decay=0.01,
                use_cpu=True,
                report_to="none",
                save_strategy="no",
                disable_tqdm=True,
                logging_strategy="no",
            ),
            train_dataset=data,
            eval_dataset=data,
            optimizer_cls_and_kwargs=(AdaHB, {"lr": 1e-2}),
        )
        before = trainer.evaluate()["eval_loss"]
        trainer.train()
        after = trainer.evaluate()["eval_loss"]
    print(f"loss {before:.3f} before, {after:.3f} after 8 epochs")


if __name__ == "__main__":
    main()
