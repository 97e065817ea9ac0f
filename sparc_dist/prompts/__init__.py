"""What the model is asked: the prompt bank, where compound prompts come from, who is mentioned."""
