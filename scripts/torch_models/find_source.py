"""The program of examples/find_source.cc in PyTorch."""
import torch
import torch.nn.functional as F

SIDE, STEPS = 32, 100
DX, DT = 1 / SIDE, 1 / STEPS
SPREAD, WIND_X, WIND_Y, WIDTH = 0.015, 0.5, 0.2, 0.06
SENSORS = torch.tensor([[8, 26], [14, 16], [18, 28], [24, 20], [28, 30]])


def blown(smoke, entering):
    """One step of time: the change is that by differences of neighbours, and what enters."""
    around = F.pad(smoke, (1, 1, 1, 1))
    left, right, up, down = around[1:-1, :-2], around[1:-1, 2:], around[:-2, 1:-1], around[2:, 1:-1]
    curvature = (left + right + up + down - 4 * smoke) / (DX * DX)
    carried = (WIND_X * (right - left) + WIND_Y * (down - up)) / (2 * DX)
    return smoke + DT * (SPREAD * curvature - carried + entering)


def measured(chimney):
    """What the sensors measure at all times. `chimney` is its x, its y, and the logarithm of its rate."""
    places = torch.linspace(DX / 2, 1 - DX / 2, SIDE, dtype=torch.double)
    x, y, log_rate = chimney
    distance = (places[None, :] - x).square() + (places[:, None] - y).square()
    entering = torch.exp(log_rate - distance / (2 * WIDTH * WIDTH))
    smoke, values = torch.zeros_like(entering), []
    for _ in range(STEPS):
        smoke = blown(smoke, entering)
        values.append(smoke[SENSORS[:, 0], SENSORS[:, 1]])
    return torch.stack(values)


MEASUREMENTS = measured(torch.tensor([0.3, 0.4, 1.0], dtype=torch.double))


def loss(chimney):
    return (measured(chimney) - MEASUREMENTS).square().sum()


def main():
    chimney = torch.tensor([0.5, 0.5, 0.0], dtype=torch.double, requires_grad=True)
    optimizer = torch.optim.LBFGS([chimney], max_iter=1, max_eval=20, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        value = loss(chimney)
        value.backward()
        return value

    for iteration in range(1, 100):
        before = chimney.detach().clone()
        value = optimizer.step(closure)
        x, y, log_rate = chimney.tolist()
        print(f"iteration {iteration:2}: loss {value.item():.7e}, gradient {chimney.grad.norm():.7e}, "
              f"at ({x:.9f}, {y:.9f}), rate exp({log_rate:.9f})")
        if torch.equal(before, chimney) or chimney.grad.norm() < 1e-10:
            break


if __name__ == "__main__":
    main()
