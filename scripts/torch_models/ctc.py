"""The program of examples/ctc.cc in PyTorch."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn

SIDE, WIDTH, COLUMNS = 28, 128, 4
TIME, FEWEST, MOST = WIDTH // COLUMNS, 2, 5
CLASSES, BLANK, HIDDEN = 11, 10, 64


class Lines(torch.utils.data.Dataset):
    """Lines of two to five digits side by side, at random distances."""

    def __init__(self, digits, size, train):
        self.digits, self.size, self.train = digits, size, train

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        random = None if self.train else torch.Generator().manual_seed(i)
        count = torch.randint(FEWEST, MOST + 1, (), generator=random)
        image, labels = torch.zeros(SIDE, WIDTH), torch.zeros(MOST, dtype=torch.long)
        left = 0
        for at in range(count):
            pixels, labels[at] = self.digits[torch.randint(len(self.digits), (), generator=random)]
            place = image[:, left : left + SIDE]
            place.copy_(torch.maximum(place, pixels[0]))
            width = left + SIDE
            left += 18 + torch.randint(8, (), generator=random)
        return image, labels, (width + COLUMNS - 1) // COLUMNS, count


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(COLUMNS * SIDE, HIDDEN, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * HIDDEN, CLASSES)

    def forward(self, image, time):
        x = image.transpose(1, 2).reshape(-1, TIME, COLUMNS * SIDE)
        x = nn.utils.rnn.pack_padded_sequence(x, time.cpu(), batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(x)[0], batch_first=True, total_length=TIME)
        return self.head(y)


def loss(model, image, labels, time, count):
    log_probabilities = model(image, time).log_softmax(2).transpose(0, 1)
    return F.ctc_loss(log_probabilities, labels, time, count, blank=BLANK)


def best_path(logits, time):
    """Without repetitions and blanks."""
    path = logits[:time].argmax(1)
    path = torch.unique_consecutive(path)
    return path[path != BLANK].tolist()


def edit_distance(a, b):
    distances = list(range(len(b) + 1))
    for i, label in enumerate(a):
        before, distances[0] = distances[0], i + 1
        for j, other in enumerate(b):
            before, distances[j + 1] = distances[j + 1], min(
                before + (label != other), distances[j + 1] + 1, distances[j] + 1)
    return distances[-1]


@torch.no_grad()
def evaluate(model, batches):
    """The share of lines that are read without a mistake, and of labels that are wrong."""
    model.eval()
    right = mistakes = total = 0
    for image, labels, time, count in batches:
        for row, logits in enumerate(model(image, time)):
            apart = edit_distance(best_path(logits, time[row]), labels[row, : count[row]].tolist())
            right += apart == 0
            mistakes += apart
            total += count[row].item()
    model.train()
    return right / len(batches.dataset), mistakes / total


def main():
    from torchvision import datasets, transforms

    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    batches = {}
    for train in (True, False):
        digits = datasets.MNIST(args.data_dir, train=train, transform=transforms.ToTensor())
        batches[train] = torch.utils.data.DataLoader(Lines(digits, len(digits), train), batch_size=32, shuffle=train)
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        for batch in batches[True]:
            optimizer.zero_grad()
            value = loss(model, *batch)
            value.backward()
            optimizer.step()
        accuracy, errors = evaluate(model, batches[False])
        print(f"epoch {epoch}: loss {value.item():.4f}, accuracy {accuracy:.4f}, label errors {errors:.4f}")


if __name__ == "__main__":
    main()
